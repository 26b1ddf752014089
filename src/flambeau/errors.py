"""Exceptions of PyTorch's that are not Python's own, and the line of the program that messages are about."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from types import CodeType, FrameType

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


class OutOfMemoryError(RuntimeError):
    """A device had no room for a tensor."""


class AcceleratorError(RuntimeError):
    """A GPU reported an error, often of an operation launched earlier."""


class LinAlgError(RuntimeError):
    """A matrix did not have the property an algorithm needs (invertible, positive definite, convergent)."""


LinAlgError.__module__ = "torch._C"  # what tracebacks of PyTorch programs show and `except` clauses name
LinAlgError.__name__ = LinAlgError.__qualname__ = "_LinAlgError"


def refusal(name: str, error: type[Exception], sentence: str) -> Callable:
    """A function of this name that only says why it is not there."""

    def refuse(*args, **kwargs):
        raise error(f"{name} {sentence}")

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"Not available: {name} {sentence}."
    return refuse


def place() -> tuple[CodeType, int] | None:
    """Where the program called this package, as quickly as it can be told: `line_of` makes it readable."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return None if frame is None else (frame.f_code, frame.f_lasti)


def line_of(place: tuple[CodeType, int]) -> str:
    """file:line"""
    code, at = place
    line = next((line for start, end, line in code.co_lines() if start <= at < end), None)
    return f"{code.co_filename}:{line or code.co_firstlineno}"


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn about the line of the program that called this package."""
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
