"""flambeau.nn.functional: the operations whose name starts with `nn.functional.`; they are declared in the `ops` room."""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

from flambeau.eager import bind as _bind

if _TYPE_CHECKING:
    from flambeau._surface.nn_functional import *

globals().update(vars(_bind.namespace("nn.functional")))
__all__ = sorted(vars(_bind.namespace("nn.functional")))
