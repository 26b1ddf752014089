"""torch._dynamo.utils: helpers of PyTorch's compiler that others use."""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from flambeau.tensor import Tensor

__all__ = ["clone_input", "counters", "disable_cache_limit", "warn_once"]

counters: defaultdict[str, Counter[str]] = defaultdict(Counter)  # what a compiler counts: nothing


def clone_input(x: Tensor, *, dtype: object = None) -> Tensor:
    """A copy of a tensor with the same strides, that wants a gradient if the tensor does."""
    copied = x.detach().clone() if dtype is None else x.detach().clone().to(dtype=dtype)
    return copied.requires_grad_(x.requires_grad)


@lru_cache(4096)
def _warn_once(message: str, stacklevel: int) -> None:
    warnings.warn(message, stacklevel=stacklevel + 3)


def warn_once(msg: str, stacklevel: int = 1) -> None:
    """Warn, unless this was said before."""
    _warn_once(msg, stacklevel)


@contextmanager
def disable_cache_limit() -> Iterator[None]:
    """Within it, a function may be compiled for any number of kinds of arguments. None is compiled."""
    yield
