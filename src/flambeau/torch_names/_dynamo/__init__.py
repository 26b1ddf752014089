"""torch._dynamo: what programs say to the compiler that captures their Python. None does here: marks change nothing, settings are kept.

Nothing is captured, so nothing is captured wrongly: `mark_dynamic` and its kin have their effect by doing nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from flambeau._dynamo import eval_frame, exc, utils
from flambeau._dynamo.eval_frame import OptimizedModule
from flambeau.compiler import allow_in_graph, assume_constant_result, disable, is_compiling, reset

__all__ = [
    "OptimizedModule", "allow_in_graph", "assume_constant_result", "config", "disable", "disallow_in_graph", "eval_frame", "exc", "graph_break",
    "is_compiling", "mark_dynamic", "mark_static", "mark_static_address", "maybe_mark_dynamic", "reset", "utils",
]  # fmt: skip


class Settings:
    """Settings that a program gives a compiler: kept, and read by nobody. `patch` keeps them for a while."""

    suppress_errors = verbose = capture_scalar_outputs = capture_dynamic_output_shape_ops = False
    cache_size_limit = recompile_limit = 8

    @contextmanager
    def patch(self, settings: dict[str, Any] | str | None = None, value: Any = None, **more: Any) -> Iterator[None]:
        """Within it, these settings hold; it is a decorator too."""
        given = {settings: value} if isinstance(settings, str) else {**(settings or {}), **more}
        before = dict(vars(self))
        vars(self).update(given)
        try:
            yield
        finally:
            vars(self).clear()
            vars(self).update(before)


config = Settings()


def disallow_in_graph(fn: Any) -> Any:
    """Mark a function that is never captured, as none is; returned unchanged."""
    return fn


def graph_break(msg: str = "") -> None:
    """Let a captured program end here and another begin: nothing is captured."""


def _mark(t: Any, index: Any = None, **options: Any) -> None:
    """Say something about a tensor's sizes or address to a compiler: nothing depends on it."""


mark_dynamic: Callable[..., None] = _mark
maybe_mark_dynamic: Callable[..., None] = _mark
mark_static: Callable[..., None] = _mark
mark_static_address: Callable[..., None] = _mark
