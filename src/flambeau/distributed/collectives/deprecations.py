"""What PyTorch calls deprecated works here, too, and says the same: FutureWarning, with the name to write instead."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def old(name: str, new: str) -> Callable[[F], F]:
    """A decorator: warn the caller that `name` is old and `new` takes its place."""
    message = f"`{name}` is deprecated. Please use `torch.distributed.{new}` instead."

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def warned(*args: Any, **kwargs: Any) -> Any:
            warnings.warn(message, FutureWarning, stacklevel=2)
            return function(*args, **kwargs)

        return warned  # type: ignore[return-value]

    return decorate


def renamed(function: F, name: str) -> F:
    """The function under the name that it had before."""
    older = old(f"torch.distributed.{name}", function.__name__)(function)
    older.__name__ = older.__qualname__ = name
    older.__doc__ = f"{function.__name__} under the name it had before."
    return older
