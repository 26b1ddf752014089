"""Exceptions on their way to another thread or process: torch._utils.ExceptionWrapper."""

from __future__ import annotations

import pickle
import sys
import traceback
from typing import Any


class ExceptionWrapper:
    """An exception as text and a type, to be raised again in another thread or process."""

    def __init__(self, exc_info: Any = None, where: str = "in background") -> None:
        kind, problem, _ = exc_info or sys.exc_info()
        self.exc_type: Any = kind
        self.name = self.exc_type.__name__
        try:
            pickle.dumps(self.exc_type)
        except Exception:  # a class inside a function, say
            self.exc_type = RuntimeError
        self.exc_msg = "".join(traceback.format_exception(problem))
        self.where = where

    def reraise(self) -> None:
        """Raise it with the other's traceback as its message."""
        text = f"Caught {self.name} {self.where}.\nOriginal {self.exc_msg}"
        if self.exc_type is KeyError:
            text = _Verbatim(text)
        try:
            problem = self.exc_type(text)
        except Exception:  # its constructor wants other arguments
            problem = RuntimeError(text)
        raise problem from None


class _Verbatim(str):
    """KeyError shows the repr of its message: this one is itself."""

    def __repr__(self) -> str:
        return str(self)
