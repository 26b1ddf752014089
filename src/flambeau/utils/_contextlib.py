"""torch.utils._contextlib: context managers that decorate functions and generators, as `no_grad` does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau import modes

__all__ = ["_DecoratorContextManager", "_NoParamDecoratorContextManager", "context_decorator"]

_DecoratorContextManager = modes._Decorator


class _NoParamDecoratorContextManager(_DecoratorContextManager):
    """One that takes no arguments: `@mode` means `@mode()`."""

    def __new__(cls, orig_func: Callable | None = None) -> Any:
        made: Any = super().__new__(cls)
        if orig_func is None:
            return made
        made.__init__()
        return made(orig_func)


def context_decorator(ctx: Any, func: Callable) -> Callable:
    """The function, run inside of a context: one object that is entered for each call, or a function that makes one each time."""
    if not callable(ctx) and not hasattr(ctx, "__enter__"):
        raise TypeError(f"expected a context manager, or a function that makes one, found {ctx!r}")
    makes = isinstance(ctx, type) or not hasattr(ctx, "__enter__")

    class Within(_DecoratorContextManager):
        def __enter__(self) -> Any:
            self.now = ctx() if makes else ctx
            return self.now.__enter__()

        def __exit__(self, *problem: Any) -> Any:
            return self.now.__exit__(*problem)

    return Within()(func)
