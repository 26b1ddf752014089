"""What an operator's results look like without data: the functions given with register_fake, and the context they run in.

    @torch.library.register_fake("shop::nonzero")
    def _(x):
        n = torch.library.get_ctx().new_dynamic_size()      only for results whose size is in the data
        return x.new_empty(n, x.dim(), dtype=torch.int64)

A size that is in the data has no number on the meta device: asking for one there is an error. A mode that has numbers for it sets `context`.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

from flambeau.operators.overloads import OpOverload

__all__ = ["FakeImpl", "FakeImplCtx", "context", "current"]


class FakeImplCtx:
    """What get_ctx() gives inside a fake implementation.

    sizes    a function that makes a number that stands for a size unknown so far: sizes(min, max) -> int or SymInt; None if nobody can
    """

    def __init__(self, sizes: Callable[[int, int | None], Any] | None, op: OpOverload | None = None):
        self._sizes, self._op = sizes, op
        self._fake_mode = self._shape_env = None

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> Any:
        """A size that is known only when there is data, at least `min`."""
        if self._sizes is None:
            raise RuntimeError(
                f"{self._op}: attempted to call get_ctx() for the meta implementation of an operator with a data-dependent shape: how large the result is "
                "depends on the elements, and a tensor on the meta device has none. Run it on data, or within a FakeTensorMode that has a shape_env"
            )
        for value in (min, max):
            if value is not None and not isinstance(value, int):
                raise ValueError(
                    f"ctx.new_dynamic_size(min={min}, max={max}): expected min and max to be statically known ints but got SymInt. This is not supported."
                )
        if min < 0:
            raise ValueError(
                f"ctx.new_dynamic_size(min={min}, ...): expected min to be greater than or equal to 0: this API can only create sizes."
            )
        return self._sizes(min, max)

    create_unbacked_symint = new_dynamic_size


class Contexts(threading.local):
    """The contexts of this thread, innermost last."""

    def __init__(self) -> None:
        self.stack: list[Any] = []


thread = Contexts()


def current() -> FakeImplCtx:
    """The context of the fake implementation that is running."""
    if not thread.stack:
        raise RuntimeError(
            "get_ctx() can only be called inside a fake implementation, which torch.library.register_fake gives to an operator"
        )
    made = thread.stack[-1]
    return made() if callable(made) else made


@contextmanager
def context(made: Any) -> Any:
    """Within it, get_ctx() gives this: a FakeImplCtx, or a function that makes one."""
    thread.stack.append(made)
    try:
        yield
    finally:
        thread.stack.pop()


class FakeImpl:
    """A fake implementation, and where it was registered."""

    def __init__(self, overload: OpOverload, function: Callable, source: str):
        self.overload, self.func, self.source = overload, function, source

    @property
    def kernel(self) -> FakeImpl:
        """Itself: PyTorch has the function one step further."""
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.func(*args, **kwargs)

    def run(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        """For tensors on the meta device; a mode that has set a context before keeps it."""
        if thread.stack:
            return self.func(*args, **kwargs)
        with context(FakeImplCtx(None, self.overload)):
            return self.func(*args, **kwargs)


def source_of(fn: Callable) -> str:
    """file:line of a function."""
    code = getattr(inspect.unwrap(fn), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else repr(fn)
