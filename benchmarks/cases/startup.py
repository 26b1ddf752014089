"""What a package costs before its first tensor: the wait at `import`, the room on the disk, the download."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

from benchmarks.case import probe
from benchmarks.machine import REPOSITORY


@probe(wanted=0.1, limit=0.2)
def import_time(package):
    """`import package` in a fresh interpreter, whose own start is not counted."""
    program = f"from time import perf_counter as now; began = now(); import {package}; print(now() - began)"

    def read():
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        if ran.returncode:
            raise ImportError(ran.stderr.strip().rpartition("\n")[2])
        return float(ran.stdout.split()[-1])

    read()  # the first import reads the disk and may write bytecode
    return read


@probe(wanted=None, unit="B")
def installed_size(package):
    """Bytes of the package and of all it depends on, bytecode not counted."""
    total = sum(distribution_size(name) for name in closure(package))
    return lambda: total


@probe(wanted=None, limit=15e6, unit="B")
def wheel_size(package):
    """Bytes of the newest wheel in dist/."""
    wheels = sorted((REPOSITORY / "dist").glob(f"{package}-*.whl"), key=os.path.getmtime)
    if not wheels:
        raise FileNotFoundError(f"no dist/{package}-*.whl here")
    size = wheels[-1].stat().st_size
    return lambda: size


def closure(package):
    """Names of the distributions that `pip install package` brings, as far as they are installed here."""
    importlib.metadata.distribution(package)  # not installed: its own error says so better than a size of 0
    found, waiting = set(), [package]
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        try:
            requirements = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # required on another platform or Python
        if name not in found:
            found.add(name)
            waiting += [re.split(r"[\s;<>=!~\[(]", text, maxsplit=1)[0] for text in requirements if not is_extra(text)]
    return found


def is_extra(requirement):
    """`pytest; extra == "test"` is installed only by those who ask for it."""
    return "extra ==" in requirement.partition(";")[2]


def distribution_size(name):
    """Bytes of the files pip wrote, or of the source folder where an editable install only points at it."""
    files = [Path(file.locate()) for file in importlib.metadata.files(name) or []]
    if any(file.name == "__init__.py" or file.suffix == ".so" for file in files):
        return sum(size_of(file) for file in files)
    spec = importlib.util.find_spec(name.replace("-", "_"))  # finds a top-level package without importing it
    if spec is None or not spec.submodule_search_locations:
        return sum(size_of(file) for file in files)
    return sum(size_of(file) for folder in spec.submodule_search_locations for file in Path(folder).rglob("*"))


def size_of(file):
    return file.stat().st_size if file.is_file() and file.suffix != ".pyc" else 0
