"""torch._export.wrappers: marks of constructors of tensor subclasses. Nothing is exported here, so a mark changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["mark_subclass_constructor_exportable_experimental"]

F = TypeVar("F", bound=Callable)


def mark_subclass_constructor_exportable_experimental(constructor_subclass: F) -> F:
    """The `__init__` of a subclass of Tensor, as it is."""
    if getattr(constructor_subclass, "__name__", "") != "__init__":
        raise RuntimeError(
            f"torch._export.wrappers.mark_constructor_exportable_experimental can only be applied on subclass tensor.__init__, but it was given "
            f"{getattr(constructor_subclass, '__name__', constructor_subclass)!r}"
        )
    return constructor_subclass
