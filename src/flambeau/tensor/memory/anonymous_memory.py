"""Memory that several processes map and that has no name: whoever has a descriptor of it can map it, and the system frees it with the last one.

A block with a name (a file in /dev/shm) stays behind when the process that should remove it is killed. One without cannot, and it is not
counted against the size of /dev/shm, which containers keep small.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import sys
from typing import Any

import numpy as np

# From Python 3.13 on a mapping need not keep a descriptor of its own; before, each costs one of the process's descriptors.
_UNTRACKED: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) and sys.platform != "win32" else {}


class Segment:
    """A block of shared memory: `descriptor` stands for it in this process, until it is closed; `memory` is its bytes.

    The mapping lives as long as `memory` or any view of it does, also after the segment is gone.
    """

    __slots__ = ("__weakref__", "descriptor", "memory")

    def __init__(self, descriptor: int, nbytes: int) -> None:
        if descriptor >= _room:
            _make_room(descriptor)
        self.memory = np.frombuffer(mmap.mmap(descriptor, nbytes, **_UNTRACKED), np.uint8)  # (nbytes,) uint8
        self.descriptor: int | None = descriptor

    @classmethod
    def new(cls, nbytes: int) -> Segment:
        """A fresh block of zeros, of at least one byte."""
        try:
            descriptor = _open()
            try:
                os.ftruncate(descriptor, max(nbytes, 1))
                return cls(descriptor, max(nbytes, 1))
            except BaseException:
                os.close(descriptor)
                raise
        except OSError as problem:
            if problem.errno != errno.EMFILE:
                raise
            raise RuntimeError(
                f"Too many open files: every tensor in shared memory takes one or two descriptors, and this process may have {_limits()[1]}. Allow more "
                "(ulimit -n), or put many tensors into one and share that"
            ) from problem

    @property
    def nbytes(self) -> int:
        """Its size."""
        return self.memory.size

    def close(self) -> None:
        """Give the descriptor back; the memory stays."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    def __del__(self) -> None:
        if getattr(self, "descriptor", None) is not None and os is not None:  # os is None when the interpreter is going
            self.close()


def _limits() -> tuple[int, int]:
    """How many descriptors this process may have, and how many it may ask for."""
    try:
        import resource
    except ImportError:  # Windows
        return sys.maxsize, sys.maxsize
    found = resource.getrlimit(resource.RLIMIT_NOFILE)
    return tuple(sys.maxsize if n == resource.RLIM_INFINITY else n for n in found)  # type: ignore[return-value]


_room = 128  # descriptors up to this number are below three quarters of what is allowed; looked up when first it matters


def _make_room(descriptor: int) -> None:
    """Ask for as many descriptors as can be had when three quarters are taken: a model has more tensors than the usual 1024 allow for, and a process
    that has none left cannot even receive one."""
    global _room
    soft, hard = _limits()
    if descriptor >= soft // 4 * 3 and soft < hard:
        import resource

        with contextlib.suppress(ValueError, OSError):  # some systems promise more than they give
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = _limits()[0]
    _room = max(soft // 4 * 3, descriptor + 1)


def _open() -> int:
    """A descriptor of a new block."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("flambeau", os.MFD_CLOEXEC)
    try:
        import _posixshmem
    except ImportError:
        raise NotImplementedError("memory cannot be shared between processes on this system: it has no anonymous shared memory") from None
    name = f"/fl{os.getpid():x}{os.urandom(8).hex()}"
    descriptor = _posixshmem.shm_open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode=0o600)
    _posixshmem.shm_unlink(name)
    return descriptor
