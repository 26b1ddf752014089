"""The line of the program that a call comes from: the first one outside of this package and of Python's own library.

A thread of ours that works for the program later (a lane, a save in the background) has none. `begun_at` lends it the line that began the work.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
LIBRARY = os.path.dirname(os.__file__) + os.sep

_begun = threading.local()


def line_of_caller() -> str:
    """Where the program is that called us: "train.py:12"."""
    return place(sys._getframe(1)) or getattr(_begun, "at", "") or f"thread {threading.current_thread().name}"


@contextmanager
def begun_at(line: str) -> Iterator[None]:
    """Inside the block this thread does what was begun in that line of the program."""
    before, _begun.at = getattr(_begun, "at", ""), line
    try:
        yield
    finally:
        _begun.at = before


def place(frame: Any) -> str:
    """The innermost line of the program in the stack of this frame; "" if there is none."""
    typed_in = ""  # of `python -c` and of prompts; but dataclasses' methods have such names, too
    while frame is not None:
        file = frame.f_code.co_filename
        if not _is_ours(file):
            if not file.startswith("<"):
                return _line(file, frame.f_lineno)
            typed_in = typed_in or _line(file, frame.f_lineno)
        frame = frame.f_back
    return typed_in


@lru_cache(4096)
def _is_ours(file: str) -> bool:
    if file.startswith(LIBRARY):
        return "-packages" not in file
    return file.startswith((PACKAGE, "<frozen ")) and not file.startswith(PACKAGE + "examples")


@lru_cache(4096)
def _line(file: str, number: int) -> str:
    return f"{file}:{number}"
