"""flambeau.nn.functional: the operations whose name starts with `nn.functional.`; they are declared in the `ops` room."""

from __future__ import annotations

from flambeau.eager import bind as _bind

globals().update(vars(_bind.namespace("nn.functional")))
__all__ = sorted(vars(_bind.namespace("nn.functional")))
