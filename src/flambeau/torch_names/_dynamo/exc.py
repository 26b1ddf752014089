"""The errors of a compiler that captures Python, for `except`. None is raised here."""

from __future__ import annotations


class TorchDynamoException(RuntimeError):
    """Any of them."""


class InternalTorchDynamoError(TorchDynamoException):
    """The compiler itself failed."""


class BackendCompilerFailed(TorchDynamoException):
    """The compiler's second half failed."""


class Unsupported(TorchDynamoException):
    """A line of Python cannot be captured."""


class UserError(Unsupported):
    """A line of Python cannot be captured, and the program could say it otherwise."""
