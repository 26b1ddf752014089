"""A stream whose bytes reach the disk: `serialization.durable`'s writer with the face of a Python file."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from flambeau.serialization import durable

BUFFER = 1 << 18  # bytes: the small records of an archive together, large ones go past it


@contextmanager
def writing(path: str) -> Iterator[Any]:
    """A stream that writes a new file, or over one. OSErrors name the file."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    with naming(path):
        stream = io.BufferedWriter(DurableStream(path, durable.calls.open(path, flags, 0o666)), BUFFER)
        try:
            yield stream
            stream.close()
        except BaseException:
            with suppress(OSError):
                stream.raw.close()  # below the buffer: what is in there is not written any more
            raise


@contextmanager
def naming(path: str) -> Iterator[None]:
    """An OSError in this block says which file it is about: those of calls with a descriptor do not know."""
    try:
        yield
    except OSError as problem:
        if problem.filename is None and problem.errno is not None:
            problem.filename = path
        raise


class DurableStream(io.RawIOBase):
    """What is written is on its way to the disk while more comes; after `sync`, it is there."""

    def __init__(self, path: str, descriptor: int):
        self.name = path
        self.writer = durable.Writer(descriptor)

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self.writer.write(data)
        return size

    def sync(self) -> None:
        """Return when the disk has everything."""
        self.writer.flush()

    def fileno(self) -> int:
        return self.writer.descriptor

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return os.lseek(self.writer.descriptor, offset, whence)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self.writer.wait()
            durable.calls.close(self.writer.descriptor)


def sync(stream: Any) -> None:
    """Return when the disk has everything that was written to a stream: any that has a file behind it, or else everything of the machine."""
    stream.flush()
    raw = getattr(stream, "raw", None)
    if isinstance(raw, DurableStream):
        raw.sync()
        return
    try:
        descriptor = stream.fileno()
    except (AttributeError, io.UnsupportedOperation):
        os.sync()
        return
    durable.calls.fsync(descriptor)


def leave_to_system(stream: Any) -> None:
    """Do not set the disk to work before `sync`: the system writes when it likes."""
    raw = getattr(stream, "raw", None)
    if isinstance(raw, DurableStream):
        raw.writer.unsynced = -sys.maxsize


def sync_folder(folder: str) -> None:
    """Make the names in a folder last."""
    with naming(folder):
        durable._sync_folder(folder)
