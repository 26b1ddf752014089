"""torch.compiler: asking whether a compiler is at work, and telling it what to leave alone.

These questions and marks are in many programs that never compile anything. Without a compiler the answers are no, a mark changes nothing, and
`compile` gives what runs the program as it is (`eagerly.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.compiler.eagerly import compile

__all__ = [
    "allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin", "disable", "is_compiling", "is_dynamo_compiling", "is_exporting",
    "reset",
]  # fmt: skip


def is_compiling() -> bool:
    """Whether this code is being captured by a compiler: no."""
    return False


def is_dynamo_compiling() -> bool:
    """Whether this code is being captured by a compiler: no."""
    return False


def is_exporting() -> bool:
    """Whether this code is being exported: no."""
    return False


def disable(fn: Callable | None = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Mark a function that is always run as it is, as every function is; with and without parentheses."""
    return fn if fn is not None else lambda function: function


_disable_dynamo = disable


def allow_in_graph(fn: Any) -> Any:
    """Mark a function that a compiler may take as a whole; returned unchanged."""
    return fn


def assume_constant_result(fn: Any) -> Any:
    """Mark a function whose result a compiler may keep; returned unchanged."""
    return fn


def cudagraph_mark_step_begin() -> None:
    """Say that a step begins. Nothing depends on it."""


def reset() -> None:
    """Forget what was compiled: nothing was."""
