"""Where a checkpoint is read from: a file by its descriptor, from several threads at once, or any object with `read` and `seek`."""

from __future__ import annotations

import functools
import io
import math
import mmap
import os
import threading
from time import perf_counter
from typing import Any

from flambeau.kernels.native import native
from flambeau.serialization.checksum import crc32, is_compiled

CHUNK = 1 << 17  # bytes
WORTH_MAPPING = 1 << 20  # bytes


class Source:
    """`size` bytes that can be read at any place. `name` is for messages."""

    name: str
    size: int
    base: int  # where they begin in the file
    parallel = False  # whether several threads may read at once

    def read_into(self, at: int, memory: memoryview) -> None:
        """Fill the memory with the bytes from `at` on."""
        raise NotImplementedError

    def read_summed(self, at: int, memory: memoryview) -> int:
        """Fill the memory with the bytes from `at` on, chunk by chunk; their checksum, taken while a chunk is in the cache."""
        total = 0
        for start in range(0, len(memory), CHUNK):
            chunk = memory[start : start + CHUNK]
            self.read_into(at + start, chunk)
            total = crc32(chunk, total)
        return total

    def read_some(self, at: int, size: int) -> bytes:
        """At most `size` bytes from `at` on."""
        raise NotImplementedError

    def read(self, at: int, size: int) -> bytes:
        """The `size` bytes from `at` on."""
        if at < 0 or at + size > self.size:
            raise self.ended(at, size)
        found = self.read_some(at, size)  # all of it, as a rule
        while len(found) < size:
            more = self.read_some(at + len(found), size - len(found))
            if not more:
                raise self.ended(at, size)
            found += more
        return found

    def ended(self, at: int, size: int) -> RuntimeError:
        return RuntimeError(f"{self.name} cannot be read: bytes {at} to {at + size} are wanted, but there are only {self.size}")


class FileSource(Source):
    """A file of the system."""

    parallel = hasattr(os, "preadv")

    def __init__(self, descriptor: int, name: str, base: int = 0):
        self.descriptor, self.name, self.base = descriptor, name, base
        self.size = os.fstat(descriptor).st_size - base
        self.pace: dict[Any, float] = {}  # seconds per byte of the ways of reading, at their best

    def read_some(self, at: int, size: int) -> bytes:
        return os.pread(self.descriptor, size, self.base + at)

    def read_into(self, at: int, memory: memoryview) -> None:
        wanted, start = len(memory), at
        while memory:
            got = os.preadv(self.descriptor, [memory], self.base + at)
            if not got:
                raise self.ended(start, wanted)
            at, memory = at + got, memory[got:]

    def ended(self, at: int, size: int) -> RuntimeError:
        self.size = os.fstat(self.descriptor).st_size - self.base  # somebody may have cut it short
        return super().ended(at, size)

    if is_compiled:

        def read_summed(self, at: int, memory: memoryview) -> int:
            """As Source's, in one call, in which other threads run. Cached files are read the way that has been quicker so far: that depends
            on how the system keeps them (in large pages, copying from the mapped file saves a third of the time; in small ones, nothing)."""
            if len(memory) < WORTH_MAPPING or not self._is_cached(at + len(memory) - 1):
                return self._read_and_sum(at, memory)
            way = min((FileSource._read_and_sum, FileSource._copy_and_sum), key=lambda way: self.pace.get(way, 0.0))
            start = perf_counter()
            total = way(self, at, memory)
            self.pace[way] = min((perf_counter() - start) / len(memory), self.pace.get(way, math.inf))
            return total

        def _is_cached(self, at: int) -> bool:
            """Whether a byte is in the system's page cache, from where it comes without waiting for a disk."""
            try:
                return os.preadv(self.descriptor, [bytearray(1)], self.base + at, os.RWF_NOWAIT) == 1
            except (OSError, AttributeError):  # it is not; or this system, or its file system, cannot tell
                return False

        def _read_and_sum(self, at: int, memory: memoryview) -> int:
            got, total = native.lib.read_summed(self.descriptor, self.base + at, memory, 0)
            if got < len(memory):
                raise self.ended(at, len(memory))
            return total

        def _copy_and_sum(self, at: int, memory: memoryview) -> int:
            found = native.lib.copy_summed(self.mapped, self.base + at, memory) if self.mapped else None
            return self._read_and_sum(at, memory) if found is None else found

        @functools.cached_property
        def mapped(self) -> mmap.mmap | None:
            """The file as memory, if it can be had so."""
            try:
                return mmap.mmap(self.descriptor, 0, access=mmap.ACCESS_READ)
            except (OSError, ValueError):
                return None


class StreamSource(Source):
    """A Python object with `read`, `seek` and `tell`, from where it stands to its end."""

    def __init__(self, file: Any):
        self.file = file
        self.name = f"the {type(file).__name__}" if not isinstance(getattr(file, "name", None), str) else file.name
        self.base = file.tell()
        file.seek(0, os.SEEK_END)
        self.size = file.tell() - self.base
        file.seek(self.base)
        self.lock = threading.Lock()

    def read_some(self, at: int, size: int) -> bytes:
        with self.lock:
            self.file.seek(self.base + at)
            return self.file.read(size)

    def read_into(self, at: int, memory: memoryview) -> None:
        wanted, start = len(memory), at
        with self.lock:
            self.file.seek(self.base + at)
            while memory:
                got = self._next(memory)
                if not got:
                    raise self.ended(start, wanted)
                memory = memory[got:]

    def _next(self, memory: memoryview) -> int:
        if hasattr(self.file, "readinto"):
            return self.file.readinto(memory)
        data = self.file.read(len(memory))
        memory[: len(data)] = data
        return len(data)


def source_of(file: Any) -> Source:
    """The source behind an open file object: its descriptor if it is a plain file."""
    if FileSource.parallel and type(file) in (io.FileIO, io.BufferedReader):
        raw = file if type(file) is io.FileIO else file.raw
        if type(raw) is io.FileIO:
            return FileSource(file.fileno(), str(file.name), file.tell())
    return StreamSource(file)
