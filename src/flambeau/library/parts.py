"""Operators of PyTorch's that are pieces of operations here, or that mean something else than the function of their name."""

from __future__ import annotations

from collections.abc import Callable

from flambeau.ops.overloads import OpOverload

FOUND: dict[str, Callable] = {}


def find(overload: OpOverload) -> Callable | None:
    """The function for an overload, by its name or that of all overloads."""
    return FOUND.get(overload.__name__) or FOUND.get(overload._opname)
