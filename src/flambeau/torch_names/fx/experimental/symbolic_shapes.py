"""Questions about sizes that may be unknown. Here every size is a number, so each question has its answer."""

from __future__ import annotations

from typing import Any

from flambeau import import_only

__all__ = [
    "GuardOnDataDependentSymNode", "free_symbols", "free_unbacked_symbols", "guard_or_false", "guard_or_true", "statically_known_true",
]  # fmt: skip


class GuardOnDataDependentSymNode(RuntimeError):
    """What a compiler raises where a branch depends on an unknown size, for `except`. It is not raised here."""


def guard_or_false(a: Any) -> bool:
    """Whether it is true; False where that cannot be known, which does not occur."""
    return bool(a)


def guard_or_true(a: Any) -> bool:
    """Whether it is true; True where that cannot be known, which does not occur."""
    return bool(a)


def statically_known_true(x: Any) -> bool:
    """Whether it is true for every unknown size, of which there are none."""
    return bool(x)


free_symbols, free_unbacked_symbols = import_only.functions(
    "torch.fx.experimental.symbolic_shapes", "free_symbols free_unbacked_symbols", "there are no unknown sizes in Flambeau"
)
