"""flambeau.linalg: the operations whose name starts with `linalg.`; they are declared in the `ops` room."""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

from flambeau.eager import bind as _bind
from flambeau.errors import LinAlgError

if _TYPE_CHECKING:
    from flambeau._surface.linalg import *

globals().update(vars(_bind.namespace("linalg")))
__all__ = ["LinAlgError", *sorted(vars(_bind.namespace("linalg")))]
