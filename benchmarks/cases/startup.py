"""What a package costs before its first tensor: the wait at `import`, the room on the disk, the download."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from benchmarks.case import probe
from benchmarks.machine import REPOSITORY


@probe(wanted=0.1, limit=0.2)
def import_time(package):
    """`import package` in a fresh interpreter, whose own start is not counted."""
    program = f"from time import perf_counter as now; began = now(); import {package}; print(now() - began)"
    setting = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}  # installed packages have bytecode

    def read():
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=setting)
        if ran.returncode:
            raise ImportError(ran.stderr.strip().rpartition("\n")[2])
        return float(ran.stdout.split()[-1])

    read()  # the first import reads the disk and may write bytecode
    return read


@probe(wanted=None, unit="B")
def installed_size(package):
    """Bytes of the package and of all it depends on, bytecode not counted."""
    total = sum(distribution_size(name) for name in closure(*required_by(package)))
    total += distribution_size(package) if is_installed(package) else unpacked_size(package)
    return lambda: total


@probe(wanted=None, limit=15e6, unit="B")
def wheel_size(package):
    """Bytes of the wheel of these sources."""
    size = wheel_of(package).stat().st_size
    return lambda: size


@functools.cache
def wheel_of(package):
    """The newest wheel in dist/, or one built now, in a temporary folder. Building takes a minute where the kernels are not compiled yet."""
    wheels = sorted((REPOSITORY / "dist").glob(f"{package}-*.whl"), key=os.path.getmtime)
    if wheels:
        return wheels[-1]
    if not (REPOSITORY / "src" / package).exists():
        raise FileNotFoundError(f"no dist/{package}-*.whl here, nor the sources to build one from")
    _kept.append(tempfile.TemporaryDirectory())
    folder = _kept[-1].name
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "-w", folder]
    built = subprocess.run([*command, str(REPOSITORY)], capture_output=True, text=True)
    if built.returncode:
        raise FileNotFoundError(f"the wheel was not built: {built.stderr.strip().rpartition(chr(10))[2]}")
    return next(Path(folder).glob(f"{package}-*.whl"))


_kept = []  # temporary folders, until the program ends


def unpacked_size(package):
    """Bytes that the wheel of these sources will take on the disk."""
    with zipfile.ZipFile(wheel_of(package)) as archive:
        return sum(member.file_size for member in archive.infolist())


def is_installed(package):
    """Whether pip knows the package here; a folder on the path of a development environment is not enough."""
    try:
        return bool(importlib.metadata.distribution(package))
    except importlib.metadata.PackageNotFoundError:
        return False


def required_by(package):
    """Names of the distributions a package asks for, from its metadata or its wheel's."""
    if is_installed(package):
        return names_in(importlib.metadata.requires(package))
    with zipfile.ZipFile(wheel_of(package)) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(metadata).decode().splitlines()
    return names_in([line.partition(": ")[2] for line in lines if line.startswith("Requires-Dist: ")])


def closure(*packages):
    """Names of the distributions that `pip install` brings with these, as far as they are installed here."""
    found, waiting = set(), list(packages)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name not in found and is_installed(name):  # others are required on another platform or Python
            found.add(name)
            waiting += names_in(importlib.metadata.requires(name))
    return found


def names_in(requirements):
    """The names in lines such as `numpy>=2.1`; `pytest; extra == "test"` is installed only by those who ask for it."""
    wanted = [text for text in requirements or [] if "extra ==" not in text.partition(";")[2]]
    return [re.split(r"[\s;<>=!~\[(]", text, maxsplit=1)[0] for text in wanted]


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
