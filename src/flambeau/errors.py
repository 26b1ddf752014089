"""Exceptions of PyTorch's that are not Python's own."""

from __future__ import annotations


class OutOfMemoryError(RuntimeError):
    """A device had no room for a tensor."""


class AcceleratorError(RuntimeError):
    """A GPU reported an error, often of an operation launched earlier."""


class LinAlgError(RuntimeError):
    """A matrix did not have the property an algorithm needs (invertible, positive definite, convergent)."""


LinAlgError.__module__ = "torch._C"  # what tracebacks of PyTorch programs show and `except` clauses name
LinAlgError.__name__ = LinAlgError.__qualname__ = "_LinAlgError"
