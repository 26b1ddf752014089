"""The line of the program that a call comes from: the first one outside of this package and of Python's own library."""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from typing import Any

PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
LIBRARY = os.path.dirname(os.__file__) + os.sep


def line_of_caller() -> str:
    """Where the program is that called us: "train.py:12"."""
    return place(sys._getframe(1))


def place(frame: Any) -> str:
    """The innermost line of the program in the stack of this frame."""
    innermost = frame
    while _is_ours(frame.f_code.co_filename):
        if frame.f_back is None:
            frame = innermost
            break
        frame = frame.f_back
    return _line(frame.f_code.co_filename, frame.f_lineno)


@lru_cache(4096)
def _is_ours(file: str) -> bool:
    if file.startswith(LIBRARY):
        return "-packages" not in file
    return file.startswith((PACKAGE, "<")) and not file.startswith(PACKAGE + "examples")


@lru_cache(4096)
def _line(file: str, number: int) -> str:
    return f"{file}:{number}"
