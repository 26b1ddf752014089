"""redirect_stdout, redirect_stderr: for a while, a standard stream of this process goes to a file, also what C libraries write to it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

__all__ = ["redirect", "redirect_stderr", "redirect_stdout"]


@contextmanager
def redirect(std: str, to_file: str) -> Iterator[None]:
    """Send "stdout" or "stderr" to a file, which is written anew."""
    if std not in ("stdout", "stderr"):
        raise ValueError(f"unknown standard stream {std!r}: must be one of stdout, stderr")
    stream, number = getattr(sys, std), 1 if std == "stdout" else 2
    before = os.dup(number)
    stream.flush()
    with open(to_file, "w+b") as file:
        os.dup2(file.fileno(), number)
    try:
        yield
    finally:
        stream.flush()
        os.dup2(before, number)
        os.close(before)


redirect_stdout = partial(redirect, "stdout")
redirect_stderr = partial(redirect, "stderr")
