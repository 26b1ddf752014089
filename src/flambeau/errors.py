"""Exceptions of PyTorch's that are not Python's own."""

from __future__ import annotations

from collections.abc import Callable


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
