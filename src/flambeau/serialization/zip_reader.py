"""Reading zip archives from strangers: every number is checked before it is used.

The archive is a list of `Record`s: a name and a stretch of the file. They do not overlap, lie inside the file, are stored uncompressed (so
nothing can unpack to more than the file itself), and no two have the same name. What does not look like this is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import unpack_from
from typing import NoReturn

from flambeau.serialization.checksum import crc32
from flambeau.serialization.sources import Source

END, END64, LOCATOR, ENTRY, LOCAL = b"PK\5\6", b"PK\6\6", b"PK\6\7", b"PK\1\2", b"PK\3\4"
WIDE = 0xFFFFFFFF  # stands for a number that did not fit and is in the 64-bit field
MOST_RECORDS, MOST_DIRECTORY = 1 << 20, 1 << 28


@dataclass(frozen=True)
class Record:
    """`size` bytes of the file from `start` on, with their checksum."""

    name: str
    start: int
    size: int
    crc: int


class ZipReader:
    """The records of an archive, by the names they have behind the archive's own."""

    def __init__(self, source: Source):
        self.source = source
        self.records = self._read_directory()
        # PyTorch can be told not to compute checksums (set_crc32_options); it writes 0 for every record then.
        self.has_checksums = any(r.crc for r in self.records.values()) or not any(r.size for r in self.records.values())

    def __contains__(self, name: str) -> bool:
        return name in self.records

    def find(self, name: str) -> Record:
        """The record of that name."""
        found = self.records.get(name)
        if found is None:
            raise RuntimeError(f"{self.source.name} has no record {name!r}: the checkpoint is incomplete, or was not written by torch.save")
        return found

    def read(self, name: str) -> bytes:
        """The bytes of a small record, checked."""
        record = self.find(name)
        data = self.source.read(record.start, record.size)
        if self.has_checksums and crc32(data) != record.crc:
            self.refuse(f"record {name!r} is damaged: its bytes do not have the checksum that was written with them")
        return data

    def refuse(self, why: str) -> NoReturn:
        raise RuntimeError(f"{self.source.name} cannot be read: {why}")

    # -- the directory

    def _read_directory(self) -> dict[str, Record]:
        start, size, count = self._find_directory()
        if count > MOST_RECORDS or size > MOST_DIRECTORY:
            self.refuse(f"its directory claims {count} records in {size} bytes, more than any checkpoint has")
        if count * 46 > size:
            self.refuse(f"its directory of {size} bytes is too short for {count} records")
        directory = self.source.read(start, size)
        entries, at = [], 0
        for _ in range(count):
            if directory[at : at + 4] != ENTRY or at + 46 > size:
                self.refuse("its directory is damaged")
            at = self._read_entry(directory, at, entries)
        found: dict[str, Record] = {}
        prefix, end = None, 0
        for name, offset, length, crc in sorted(entries, key=lambda entry: entry[1]):
            if offset < end:
                self.refuse(f"record {name!r} overlaps the one before it")
            data = self._data_start(name, offset)
            end = data + length
            if end > start:
                self.refuse(f"record {name!r} reaches beyond the end of the records")
            folder, _, short = name.partition("/")
            prefix = folder if prefix is None else prefix
            if folder == prefix and short:
                if short in found:
                    self.refuse(f"there are two records {name!r}")
                found[short] = Record(short, data, length, crc)
        return found

    def _find_directory(self) -> tuple[int, int, int]:
        """(place, bytes, number of entries) of the directory, from the last bytes of the file."""
        total = self.source.size
        tail_start = max(0, total - 22 - 0xFFFF)
        tail = self.source.read(tail_start, total - tail_start)
        at = tail.rfind(END)
        while at >= 0 and (at + 22 > len(tail) or at + 22 + unpack_from("<H", tail, at + 20)[0] != len(tail)):
            at = tail.rfind(END, 0, at)
        if at < 0:
            self.refuse("it has no zip directory at its end. Was it cut short while it was copied or downloaded?")
        disk, first, here, count, size, start = unpack_from("<HHHHII", tail, at + 4)
        end = tail_start + at
        if at >= 20 and tail[at - 20 : at - 16] == LOCATOR:
            (place,) = unpack_from("<Q", tail, at - 12)
            if place + 56 > end - 20:
                self.refuse("the end of its directory is damaged")
            last = self.source.read(place, 56)
            if last[:4] != END64:
                self.refuse("the end of its directory is damaged")
            disk, first, here, count, size, start = unpack_from("<IIQQQQ", last, 16)
            end = place
        if disk or first or here != count:
            self.refuse("it is one part of a zip archive in several files")
        if start + size != end:
            self.refuse(f"its directory should lie at {start} to {start + size}, before its end mark, which is at {end}")
        return start, size, count

    def _read_entry(self, directory: bytes, at: int, entries: list[tuple[str, int, int, int]]) -> int:
        """Add (name, offset, size, checksum) of the entry at `at`; the place of the next one."""
        flags, method = unpack_from("<HH", directory, at + 8)
        crc, packed, size, name_bytes, extra_bytes, comment, disk = unpack_from("<IIIHHHH", directory, at + 16)
        (offset,) = unpack_from("<I", directory, at + 42)
        name_end = at + 46 + name_bytes
        after = name_end + extra_bytes + comment
        if after > len(directory):
            self.refuse("its directory is damaged")
        try:
            name = directory[at + 46 : name_end].decode()
        except UnicodeDecodeError:
            self.refuse(f"the name of a record is not UTF-8: {directory[at + 46 : name_end]!r}")
        wide = _wide_numbers(directory[name_end : name_end + extra_bytes])
        try:
            size, packed, offset = (wide.pop(0) if number == WIDE else number for number in (size, packed, offset))
        except IndexError:
            self.refuse(f"the size or place of record {name!r} is missing")
        if method or packed != size:
            self.refuse(
                f"record {name!r} is compressed, which PyTorch's checkpoints never are. Unpack the archive and store it uncompressed"
            )
        if flags & 1 or disk:
            self.refuse(f"record {name!r} is encrypted, or in another file")
        entries.append((name, offset, size, crc))
        return after

    def _data_start(self, name: str, offset: int) -> int:
        """Where the bytes of a record begin: behind its local header, which must say the same name."""
        encoded = name.encode()
        if offset + 30 + len(encoded) > self.source.size:
            self.refuse(f"record {name!r} lies beyond the end of the file")
        header = self.source.read(offset, 30 + len(encoded))
        name_bytes, extra_bytes = unpack_from("<HH", header, 26)
        if header[:4] != LOCAL or name_bytes != len(encoded) or header[30:] != encoded:
            self.refuse(f"the header of record {name!r} is damaged")
        return offset + 30 + name_bytes + extra_bytes


def _wide_numbers(extra: bytes) -> list[int]:
    """The 64-bit numbers among the extra fields of a directory entry."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = unpack_from("<HH", extra, at)
        if kind == 1:
            field = extra[at + 4 : at + 4 + length]
            return [unpack_from("<Q", field, i)[0] for i in range(0, len(field) - 7, 8)]
        at += 4 + length
    return []
