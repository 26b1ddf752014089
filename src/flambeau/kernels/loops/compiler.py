"""The system's C compiler: which one it is, and what it is told.

$CC, or else `cc`. The flags are those of the installation (setup.py), so that a loop computes the same bits whenever it was compiled: no flag assumes
that NaN or infinity do not occur, and integers wrap around, as tensors' do.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

FLAGS = (
    "-std=gnu11", "-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fwrapv", "-fopenmp-simd", "-fno-strict-aliasing",
    "-fvisibility=hidden", "-g0",
)  # fmt: skip
IS_X86 = platform.machine().lower() in ("x86_64", "amd64")
AVX2 = ("-mavx2", "-mfma", "-mf16c", "-mbmi2")
AVX512 = (*AVX2, "-mavx512f", "-mavx512vl", "-mavx512bw", "-mavx512dq", "-mprefer-vector-width=512")
VARIANTS = {"baseline": (), "avx2": AVX2, "avx512": AVX512} if IS_X86 else {"baseline": ()}
SHARED = ("-shared", "-fPIC", "-undefined", "dynamic_lookup") if sys.platform == "darwin" else ("-shared", "-fPIC", "-Wl,-s")


class CannotCompile(Exception):
    """There is no compiler, or it refused."""


def command() -> tuple[str, ...]:
    """The compiler and what belongs to its name, as in CC="ccache gcc"."""
    words = shlex.split(os.environ.get("CC", "")) or ["cc"]
    found = shutil.which(words[0])
    if found is None:
        raise CannotCompile(f"no C compiler: {words[0]!r} is not found")
    return found, *words[1:]


@lru_cache(8)
def version(words: tuple[str, ...]) -> str:
    """What the compiler says of itself."""
    return _run((*words, "--version"), 20)


def flags(variant: str) -> tuple[str, ...]:
    """What it is told, for a CPU variant of the extension's."""
    return (*FLAGS, *VARIANTS[variant], *SHARED, "-DFL_NAME(x)=x##_loaded")


def compile_shared(words: tuple[str, ...], told: tuple[str, ...], source: Path, library: Path) -> None:
    """Compile one C file to a shared object."""
    _run((*words, *told, "-w", "-o", str(library), str(source), "-lm"), 300)


def _run(words: tuple[str, ...], seconds: float) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, timeout=seconds)
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise CannotCompile(f"{words[0]} did not run: {problem}") from problem
    if done.returncode:
        raise CannotCompile(f"{words[0]} ended with {done.returncode}: {done.stderr[:2000]}")
    return done.stdout
