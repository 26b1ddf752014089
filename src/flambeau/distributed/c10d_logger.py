"""torch.distributed.c10d_logger: decorators that tell the logging module of the failures and the times of collective functions."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("flambeau.distributed")
_c10d_logger = logging.getLogger("c10d")
_c10d_logger.addHandler(logging.NullHandler())


def _exception_logger(func: Callable[P, T]) -> Callable[P, T]:
    """Let a function's failure be noted at level DEBUG, and go on its way."""

    @functools.wraps(func)
    def logged(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return func(*args, **kwargs)
        except Exception as error:
            _c10d_logger.debug("%s failed: %s", func.__name__, error)
            raise

    return logged


def _time_logger(func: Callable[P, T]) -> Callable[P, T]:
    """Let a function's time be noted at level DEBUG."""

    @functools.wraps(func)
    def logged(*args: P.args, **kwargs: P.kwargs) -> T:
        started = time.perf_counter()
        result = func(*args, **kwargs)
        _c10d_logger.debug("%s took %.6f s", func.__name__, time.perf_counter() - started)
        return result

    return logged
