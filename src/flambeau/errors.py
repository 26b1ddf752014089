"""Exceptions of PyTorch's that are not Python's own, and the line of the program that messages are about."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from types import CodeType, FrameType

from flambeau import changes

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


class OutOfMemoryError(RuntimeError):
    """A device had no room for a tensor."""


class HostMemoryError(RuntimeError, MemoryError):
    """Main memory had no room for a tensor. PyTorch raises RuntimeError, Python MemoryError: whoever expects one of them gets it."""

    def __reduce__(self):
        return RuntimeError, self.args


HostMemoryError.__module__ = "builtins"  # tracebacks show what PyTorch's show
HostMemoryError.__name__ = HostMemoryError.__qualname__ = "RuntimeError"


class AcceleratorError(RuntimeError):
    """A GPU reported an error, often of an operation launched earlier."""


class LinAlgError(RuntimeError):
    """A matrix did not have the property an algorithm needs (invertible, positive definite, convergent)."""


LinAlgError.__module__ = "torch._C"  # what tracebacks of PyTorch programs show and `except` clauses name
LinAlgError.__name__ = LinAlgError.__qualname__ = "_LinAlgError"


explain_memory: Callable[[str, int], str] | None = None  # (device, bytes) -> who has the memory, and what to do: the memory room's


def host_memory_error(nbytes: int, why: str = "", explain: bool = True) -> HostMemoryError:
    """The error of an allocation of that many bytes, with a table of who has the memory."""
    words = f"DefaultCPUAllocator: can't allocate memory: you tried to allocate {nbytes} bytes ({size(nbytes)})"
    return HostMemoryError(words + (f": {why}" if why else "") + (explanation("cpu", nbytes) if explain else ""))


def explanation(device: str, nbytes: int) -> str:
    """Who has the memory of a device, and what to do, for the end of a message. Empty where there is no room even for that."""
    if explain_memory is None:
        return ""
    try:
        return "\n" + explain_memory(device, nbytes)
    except (MemoryError, OSError, ImportError) as problem:
        return f"\n(who has it could not be found out: {type(problem).__name__}: {problem})"


def size(count: float) -> str:
    """Bytes in the unit that suits them.

    >>> size(0), size(2000), size(3 * 2**30)
    ('0 B', '1.95 KiB', '3.00 GiB')
    """
    power = 0
    while count >= 1000 and power < 6:
        count, power = count / 1024, power + 1
    digits = 0 if not power or count >= 99.95 else 1 if count >= 9.995 else 2
    return f"{count:.{digits}f} {('B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB')[power]}"


def refusal(name: str, error: type[Exception], sentence: str) -> Callable:
    """A function of this name that only says why it is not there."""

    def refuse(*args, **kwargs):
        raise error(f"{name} {sentence}")

    refuse.__name__, refuse.__qualname__ = name.rpartition(".")[2], name
    refuse.__doc__ = f"Not available: {name} {sentence}."
    return refuse


def is_own(file: str) -> bool:
    """Whether code of this file is the package's."""
    return file.startswith(_PACKAGE)


def place() -> tuple[CodeType, int] | None:
    """Where the program called this package, as quickly as it can be told: `line_of` makes it readable."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(_PACKAGE):
            return code, frame.f_lasti
        frame = frame.f_back
    return None


def line_of(place: tuple[CodeType, int]) -> str:
    """file:line"""
    code, at = place
    line = next((line for start, end, line in code.co_lines() if start <= at < end), None)
    return f"{code.co_filename}:{line or code.co_firstlineno}"


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn about the line of the program that called this package."""
    changes.each_time()
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
