"""A stretch of a file as a file of its own."""

from __future__ import annotations

import io
import os
from typing import Any


class _ReaderView(io.IOBase):
    """`len` bytes of a stream from `offset` on. Reading moves the stream behind it."""

    def __init__(self, base_stream: Any, offset: int, len: int):
        super().__init__()
        self.base_stream, self.offset, self.len = base_stream, offset, len
        self.name = getattr(base_stream, "name", "")
        self.seek(0)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self.tell(), os.SEEK_END: self.len}[whence] if whence else 0
        self.base_stream.seek(self.offset + max(0, start + offset))
        return self.tell()

    def tell(self) -> int:
        return self.base_stream.tell() - self.offset

    def readable(self) -> bool:
        return self.base_stream.readable()

    def seekable(self) -> bool:
        return self.base_stream.seekable()

    def readinto(self, b: Any) -> int:
        memory = memoryview(b)[: max(0, self.len - self.tell())]
        return self.base_stream.readinto(memory)

    def read(self, size: int = -1) -> bytes:
        left = max(0, self.len - self.tell())
        return self.base_stream.read(left if size is None or size < 0 else min(size, left))


def _create_file_view(file: Any, offset: int, length: int) -> Any:
    """The stretch as a file."""
    return _ReaderView(file, offset, length)
