"""Loops that were not compiled at installation: compiled when they are first wanted, and kept on disk for the next run.

`kernel` gives the same compiled Kernel as for those that were, or what answers NotImplemented, which sends the caller to NumPy: nothing fails for want
of a compiler. FLAMBEAU_COMPILE=0 asks for that.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

from flambeau.kernels.loops import cache, compiler
from flambeau.kernels.loops.language import Loop
from flambeau.kernels.native import native

_one_at_a_time = threading.Lock()  # of the threads of this process, which would all wait for the same compiler


def kernel(schedule: str, loop: Loop) -> Callable:
    """The loop under a schedule (see schedules.py), for all its dtypes. All its schedules are compiled at once."""
    from flambeau.kernels.loops.schedules import SCHEDULES

    if native.lib is None or os.environ.get("FLAMBEAU_COMPILE") == "0" or not SCHEDULES[schedule].takes(loop):
        return native.not_compiled
    with _one_at_a_time:
        return load(f"{schedule}.{loop.name}", _text(loop))


@lru_cache(256)
def _text(loop: Loop) -> str:
    from flambeau.kernels.loops import schedules, source

    parts = [schedules.table(name, [loop]) for name in schedules.SCHEDULES]
    heads = dict.fromkeys([text for part in parts for text in part.texts])  # each once
    return source.whole(heads, [line for part in parts for line in part.declarations], [row for part in parts for row in part.rows])


def load(name: str, text: str) -> Callable:
    """The kernel of that name out of a C file (see source.py)."""
    try:
        return native.lib.Kernel(name, library(text))
    except KeyError:  # none for these dtypes
        return native.not_compiled
    except compiler.CannotCompile as problem:
        _say_once(str(problem))
        return native.not_compiled


@lru_cache(None)
def library(text: str) -> object:
    """A C file, compiled and loaded."""
    words, variant = compiler.command(), native.lib.variant()
    told = compiler.flags(variant)
    parts: Sequence[str] = (text, *told, *words, compiler.version(words), variant, os.uname().machine)
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]

    def make(path: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="flambeau-") as own:
            written = Path(own) / "loops.c"
            written.write_text(text)
            compiler.compile_shared(words, told, written, path)

    try:
        return cache.library(key, make, lambda path: native.lib.load(os.fsencode(path)))
    except OSError as problem:
        raise compiler.CannotCompile(f"what was compiled cannot be kept or loaded: {problem}") from problem


@lru_cache(1)
def _say_once(problem: str) -> None:
    warnings.warn(f"Flambeau compiles nothing while it runs, and carries out such loops by NumPy: {problem}", stacklevel=5)
