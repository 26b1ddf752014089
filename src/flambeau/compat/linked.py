"""Which installed packages are compiled for PyTorch itself: they look absent while `torch` means Flambeau.

torchaudio, xformers, flash-attn and many others bring shared objects that are linked against libtorch. No other torch can serve those, and
libraries that find such a package import it and fail in the middle. Nobody keeps a list: what a package was linked against stands in its
files. Its distribution's RECORD names them all, also those that lie beside the package.

Some packages can do without: torchao's own `__init__.py` loads its operators with `torch.ops.load_library` and goes on, with a word in the log, where
that fails. These are let in. A package that imports an extension module there, or lets the failure through, needs what it was compiled for.

Like alias.py, this file is loaded by its path and imports nothing of the package.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec
from typing import Any

PYTORCHS = re.compile(rb"lib(torch|c10)[._]")  # libtorch.so, libtorch_cpu.so, libc10.so, libtorch_python.dylib ...
SHARED = (".so", ".dylib", ".pyd")
LOAD, DYNAMIC = 1, 2  # kinds of segments of an ELF file
NEEDED, STRINGS = 1, 5  # entries of its dynamic segment: a library to be loaded, the address of their names


def first_for_pytorch(paths: Iterable[str]) -> str | None:
    """The first of these files that is a shared object and needs PyTorch's own libraries."""
    return next((path for path in paths if is_shared(path) and needs_pytorch(path)), None)


def shared_objects(spec: ModuleSpec) -> Iterator[str]:
    """The shared objects that were installed with a top-level module. A package of the program's own, which may well do without its
    compiled part, has none."""
    if spec.origin is not None and is_shared(spec.origin):
        yield spec.origin
    for home in map(os.path.abspath, spec.submodule_search_locations or ()):
        site = os.path.dirname(home)
        record = find_record(spec.name, site)
        if record is not None:
            with open(record, encoding="utf-8", errors="replace") as file:
                paths = (line.partition(",")[0].strip('"') for line in file if any(kind in line for kind in SHARED))
                yield from (os.path.join(site, path) for path in paths if is_shared(path))
        elif os.path.basename(site) in ("site-packages", "dist-packages") or site.endswith(".egg"):
            for folder, _, files in os.walk(home):
                yield from (os.path.join(folder, file) for file in files if is_shared(file))


def can_do_without(origin: str | None, compiled: str) -> bool:
    """Whether a package, whose file `__init__.py` is `origin`, loads its operators if it can, and goes on if not."""
    import ast  # not at the top: every process of a program loads this file

    try:
        with open(origin or "", encoding="utf-8") as file:
            program = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return False
    tried = {
        id(inside)
        for node in ast.walk(program)
        if isinstance(node, ast.Try) and _forgives(node)
        for part in node.body
        for inside in ast.walk(part)
    }
    module = os.path.basename(compiled).partition(".")[0]
    needed = [node for node in ast.walk(program) if _loads(node) or _imports(node, module)]
    return any(map(_loads, needed)) and all(id(node) in tried for node in needed)


def _forgives(node: Any) -> bool:
    """Whether a `try` goes on after any error."""
    import ast

    for handler in node.handlers:
        caught = ["BaseException"] if handler.type is None else [n.id for n in ast.walk(handler.type) if isinstance(n, ast.Name)]
        if {"Exception", "BaseException", "RuntimeError", "NotImplementedError"} & set(caught):
            return not any(isinstance(inside, ast.Raise) for inside in ast.walk(handler))
    return False


def _loads(node: Any) -> bool:
    return getattr(getattr(node, "func", None), "attr", None) == "load_library"


def _imports(node: Any, module: str) -> bool:
    """Whether a line imports a module of this name, or from it."""
    if type(node).__name__ not in ("Import", "ImportFrom"):
        return False
    paths = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
    return any(module in path.split(".") for path in paths)


def find_record(name: str, site: str) -> str | None:
    """The list of files of the distribution that is called like the package."""
    try:
        entries = os.listdir(site)
    except OSError:
        return None
    for entry in entries:
        if entry.endswith(".dist-info") and plain(entry.partition("-")[0]) == plain(name):
            record = os.path.join(site, entry, "RECORD")
            return record if os.path.exists(record) else None
    return None


def plain(name: str) -> str:
    """A name of a distribution without what does not count in it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def is_shared(path: str) -> bool:
    return path.endswith(SHARED) or ".so." in os.path.basename(path)


def needs_pytorch(path: str) -> bool:
    """Whether the loader would look for PyTorch's libraries before it loads this file."""
    try:
        with open(path, "rb") as file:
            head = file.read(64)
            if head.startswith(b"\x7fELF"):
                return any(PYTORCHS.match(library) for library in needed(file, head))
            return PYTORCHS.search(head + file.read(1 << 16)) is not None  # Mach-O and PE name what they load near their beginning
    except (OSError, struct.error, ValueError):
        return False  # it cannot be read: the loader will say why


def needed(file, head: bytes) -> Iterator[bytes]:
    """The names of the libraries that an ELF file of 64 bits asks for."""
    if head[4] != 2:
        return
    order = "<" if head[5] == 1 else ">"
    (table,), (size, count) = struct.unpack_from(f"{order}Q", head, 32), struct.unpack_from(f"{order}2H", head, 54)

    def read(start: int, length: int) -> bytes:
        file.seek(start)
        return file.read(length)

    segments = [struct.unpack(f"{order}2I6Q", read(table + i * size, 56)) for i in range(count)]
    for kind, _, offset, _, _, length, _, _ in segments:
        if kind != DYNAMIC:
            continue
        entries = list(struct.iter_unpack(f"{order}2Q", read(offset, length)))
        address = next(value for tag, value in entries if tag == STRINGS)
        strings = next(o + address - at for kind, _, o, at, _, n, _, _ in segments if kind == LOAD and at <= address < at + n)
        for tag, value in entries:
            if tag == NEEDED:
                yield read(strings + value, 256).partition(b"\0")[0]
