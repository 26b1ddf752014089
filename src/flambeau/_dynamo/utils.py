"""torch._dynamo.utils: small things of a compiler that libraries use for themselves."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

__all__ = ["disable_cache_limit", "warn_once"]


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
