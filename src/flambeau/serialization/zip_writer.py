"""Writing the zip archives that hold checkpoints: records stored as they are, each beginning at a multiple of 64 bytes so that it can be
mapped into memory, its checksum behind it.

    local header | name | padding | bytes of the record | checksum and size          for every record
    central directory: names, checksums, sizes, places | where the directory is
"""

from __future__ import annotations

from collections.abc import Callable
from struct import pack

from flambeau.serialization.checksum import crc32

CHUNK = 1 << 20  # what is summed and then written, so that it comes from the cache the second time
LIMIT = MARK = 0xFFFFFFFF  # numbers from LIMIT on go to 64-bit fields, and MARK stands in their place
SUMMED_LATER, UTF8 = 0x0008, 0x0800  # flags: checksum and size stand behind the record; names are UTF-8


class ZipWriter:
    """Records go to `write` as they come, never back: any stream will do."""

    def __init__(self, write: Callable[[bytes | memoryview], object], prefix: str, checksums: bool = True, alignment: int = 64):
        self.write, self.prefix, self.checksums, self.alignment = write, prefix, checksums, alignment
        self.position = 0
        self.directory: list[bytes] = []
        self.sums: list[tuple[str, int]] = []

    def _put(self, data: bytes | memoryview) -> None:
        self.write(data)
        self.position += len(data)

    def record(self, name: str, data: bytes | memoryview) -> None:
        """Add a record; `data` is read in pieces, and not copied."""
        encoded = f"{self.prefix}/{name}".encode()
        size, start, large = len(data), self.position, len(data) >= LIMIT
        version, shown = (45, MARK) if large else (0, 0)
        extra = pack("<HHQQ", 1, 16, size, size) if large else b""
        padding = -(start + 30 + len(encoded) + len(extra) + 4) % self.alignment
        extra += pack("<2sH", b"FB", padding) + b"Z" * padding
        header = pack("<4sHHHHHIIIHH", b"PK\3\4", version, SUMMED_LATER | UTF8, 0, 0, 0, 0, shown, shown, len(encoded), len(extra))
        self._put(header + encoded + extra)
        total = 0
        view = memoryview(data)
        for at in range(0, size, CHUNK):
            piece = view[at : at + CHUNK]
            total = crc32(piece, total) if self.checksums else 0
            self._put(piece)
        self._put(pack("<4sIQQ" if large else "<4sIII", b"PK\7\10", total, size, size))
        self.sums.append((name, total))
        self._enter(encoded, start, size, total)

    def _enter(self, name: bytes, start: int, size: int, total: int) -> None:
        """Add a record to the directory."""
        wide = (pack("<QQ", size, size) if size >= LIMIT else b"") + (pack("<Q", start) if start >= LIMIT else b"")
        extra = pack("<HH", 1, len(wide)) + wide if wide else b""
        shown, version = MARK if size >= LIMIT else size, 45 if wide else 0
        entry = pack(
            "<4sHHHHHHIIIHHHHHII", b"PK\1\2", version, version, SUMMED_LATER | UTF8, 0, 0, 0, total, shown, shown, len(name), len(extra),
            0, 0, 0, 0, MARK if start >= LIMIT else start,
        )  # fmt: skip
        self.directory.append(entry + name + extra)

    def close(self) -> None:
        """Write the directory."""
        start, entries, count = self.position, b"".join(self.directory), len(self.directory)
        self._put(entries)
        end, size = self.position, len(entries)
        self._put(pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, start))
        self._put(pack("<4sIQI", b"PK\6\7", 0, end, 1))
        few = min(count, 0xFFFF)
        self._put(pack("<4sHHHHIIH", b"PK\5\6", 0, 0, few, few, min(size, MARK), MARK if start >= LIMIT else start, 0))
