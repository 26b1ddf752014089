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
