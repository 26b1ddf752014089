"""flambeau.special: the operations whose name starts with `special.`; they are declared in the `ops` room."""

from __future__ import annotations

from flambeau.eager import bind as _bind

globals().update(vars(_bind.namespace("special")))
__all__ = sorted(vars(_bind.namespace("special")))
