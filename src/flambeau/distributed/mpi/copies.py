"""A further MPI in the same process, where the one that mpi4py found has been started already.

# Note [one MPI, several worlds]
MPI starts once in the life of a process and never again, and `from mpi4py import MPI` is enough to start it: a process that no MPI launcher
started is then a world of one rank for good. Libraries import it to ask whether there is such a launcher. A forked process inherits what its
parent started, and a program may train with other ranks after the first ones. In all these cases we load the library once more. The dynamic
linker knows libraries by file and by name, so the copy lies in memory under another name, and so does a copy of mpi4py's extension that asks
for this name. The program keeps the MPI that it has.
"""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import os
import re
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from typing import Any

from flambeau.distributed.errors import DistBackendError

NEEDED = re.compile(rb"\0(lib(mpi)(\.so[.\d]*))\0")  # among the strings of mpi4py's extension: the library that it is linked to
REFUSED = "MPI was started before in this process, by `from mpi4py import MPI` or by its parent, for other ranks, and starts only once"
_numbers = itertools.count(1)


class _Symbol(ctypes.Structure):
    """What dladdr() says about an address."""

    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p), ("address", ctypes.c_void_p)]


def another(mpi: Any) -> Any:
    """A module like mpi4py.MPI over a library of its own, which has not been started."""
    extension = Path(mpi.__file__).read_bytes()
    asked = NEEDED.search(extension)
    if asked is None or not hasattr(os, "memfd_create"):
        raise DistBackendError(f"{REFUSED}: a second one can be loaded where mpi4py is linked to libmpi.so, on Linux")
    library = Path(_file_of(ctypes.CDLL(mpi.__file__).MPI_Init)).read_bytes()
    name = asked[1]
    new = b"lib" + b"%03d" % (next(_numbers) % 1000) + asked[3]  # as long as the old one: strings in these files lie at fixed places
    files = [_in_memory(content.replace(b"\0" + name + b"\0", b"\0" + new + b"\0"), new) for content in (library, extension)]
    try:
        loaded = ctypes.CDLL(f"/proc/self/fd/{files[0]}")
        spec = importlib.util.spec_from_file_location(
            "mpi4py.MPI", f"/proc/self/fd/{files[1]}", loader=ExtensionFileLoader("mpi4py.MPI", f"/proc/self/fd/{files[1]}")
        )
        assert spec is not None and spec.loader is not None
        made = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
    finally:
        for file in files:
            os.close(file)
    made._linked = loaded  # its functions, for ctypes
    if made.Is_initialized():
        raise DistBackendError(
            f"{REFUSED}: the copy of its library finds the functions of the first one, which was loaded for everybody (RTLD_GLOBAL)"
        )
    return made


def _file_of(function: Any) -> str:
    """The file that a function was loaded from."""
    found = _Symbol()
    if not ctypes.CDLL(None).dladdr(ctypes.cast(function, ctypes.c_void_p), ctypes.byref(found)):
        raise DistBackendError(f"{REFUSED}: nobody knows where its library lies")
    return os.fsdecode(found.file)


def _in_memory(content: bytes, name: bytes) -> int:
    file = os.memfd_create(os.fsdecode(name), os.MFD_CLOEXEC)
    with open(file, "wb", closefd=False) as out:
        out.write(content)
    return file
