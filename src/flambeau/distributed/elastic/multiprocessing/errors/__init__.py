"""torch.distributed.elastic.multiprocessing.errors: why workers fail, from the worker (`record`) to the launcher (`ChildFailedError`)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from flambeau.distributed.elastic.multiprocessing.errors.error_handler import ErrorHandler
from flambeau.distributed.elastic.multiprocessing.errors.failure import ChildFailedError, ProcessFailure
from flambeau.distributed.elastic.multiprocessing.errors.handlers import get_error_handler

__all__ = ["ChildFailedError", "ErrorHandler", "ProcessFailure", "get_error_handler", "record"]
F = TypeVar("F", bound=Callable[..., Any])


def record(fn: F, error_handler: ErrorHandler | None = None) -> F:
    """Decorate a program's main function: what it raises is written to the launcher's error file, then raised on.

    Workers of Flambeau's launcher do so for every exception that reaches the top, decorated or not; this is for programs that catch it there.
    A launcher that is itself a worker passes the first failure of its own workers on.
    """
    handler = error_handler or get_error_handler()

    @functools.wraps(fn)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        handler.initialize()
        try:
            return fn(*args, **kwargs)
        except SystemExit as problem:
            if problem.code == 0:  # a program's end, for whoever runs it as a function
                return None
            if problem.code is not None:
                handler.record_exception(problem)
            raise
        except ChildFailedError as problem:
            _, failure = problem.get_first_failure()
            if failure.error_file != "<N/A>":
                handler.dump_error_file(failure.error_file, failure.exitcode)
            raise
        except Exception as problem:
            handler.record_exception(problem)
            raise

    return recorded  # type: ignore[return-value]
