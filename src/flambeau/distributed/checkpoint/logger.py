"""Reports of saves and loads: every step says when it starts, and when it ends or fails, as a dictionary to the logger "dcp_logger".

>>> import logging
>>> logging.getLogger("dcp_logger").setLevel(logging.DEBUG)   # and add a handler
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar
from uuid import uuid4

from flambeau.distributed.checkpoint.logging_handlers import DCP_LOGGER_NAME, _log_handlers

__all__: list[str] = []

T = TypeVar("T")

_dcp_logger = logging.getLogger(DCP_LOGGER_NAME)
_dcp_logger.addHandler(_log_handlers[DCP_LOGGER_NAME])
_dcp_logger.propagate = False


def _msg_dict_from_dcp_method_args(*args: Any, **kwargs: Any) -> dict[str, Any]:
    """What the arguments of a save or a load tell a reader of the log."""
    storage = kwargs.get("storage_writer") or kwargs.get("storage_reader")
    place = kwargs.get("checkpoint_id") or getattr(storage, "checkpoint_id", None)
    found = {"checkpoint_id": None if place is None else str(place), "uuid": str(uuid4().int)}
    for name in ("storage_writer", "storage_reader", "planner"):
        if kwargs.get(name):
            found[name] = type(kwargs[name]).__name__
    return found


def _dcp_method_logger(log_exceptions: bool = False, **wrapper_kwargs: Any) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Have a function report its start and its end, and with `log_exceptions` its failure."""

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        @functools.wraps(function)
        def reporting(*args: Any, **kwargs: Any) -> T:
            if not _dcp_logger.isEnabledFor(logging.DEBUG):
                return function(*args, **kwargs)
            about = {"func_name": function.__name__, **_msg_dict_from_dcp_method_args(*args, **{**kwargs, **wrapper_kwargs})}
            _dcp_logger.debug({**about, "event": "start"})
            start = time.perf_counter_ns()
            try:
                result = function(*args, **kwargs)
            except BaseException as problem:
                if log_exceptions:
                    _dcp_logger.error({**about, "event": "exception", "error": f"{problem}", "time_ns": time.perf_counter_ns() - start})
                raise
            _dcp_logger.debug({**about, "event": "end", "time_ns": time.perf_counter_ns() - start})
            return result

        return reporting

    return decorate
