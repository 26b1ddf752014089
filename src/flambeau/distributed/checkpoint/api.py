"""`CheckpointException`: what every rank hears when some rank failed."""

from __future__ import annotations

import traceback
from typing import Any, TypeAlias

__all__ = ["CheckpointException"]

WRAPPED_EXCEPTION: TypeAlias = tuple[BaseException, traceback.StackSummary]


class CheckpointException(BaseException):
    """A save or a load that failed on some ranks; `failures` has the exception and the stack of each."""

    def __init__(self, msg: str, failures: dict[int, WRAPPED_EXCEPTION]):
        super().__init__(msg, failures)
        self._failures = failures

    @property
    def failures(self) -> dict[int, WRAPPED_EXCEPTION]:
        """The exception and the stack of every rank that failed."""
        return self._failures

    def __str__(self) -> str:
        lines = [f"CheckpointException ranks:{self._failures.keys()}", *(f"    {line}" for line in self.args[:1] if line)]
        lines += [f"    rank {rank}: {type(problem).__name__}: {problem}" for rank, (problem, _) in self._failures.items()]
        for rank, (problem, stack) in self._failures.items():
            lines.append(f"Traceback (most recent call last): (RANK {rank})")
            lines += (entry.rstrip("\n") for entry in traceback.format_list(stack))
            lines += (entry.rstrip("\n") for entry in traceback.format_exception_only(type(problem), problem))
        return "\n".join(lines) + "\n"


def _wrap_exception(exc: BaseException) -> WRAPPED_EXCEPTION:
    """An exception that can be sent to other ranks."""
    return exc, traceback.extract_tb(exc.__traceback__)


def _is_wrapped_exception(obj: Any) -> bool:
    return isinstance(obj, tuple) and len(obj) == 2 and isinstance(obj[0], BaseException) and isinstance(obj[1], traceback.StackSummary)
