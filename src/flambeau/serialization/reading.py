"""The bytes of records, read into memory and checked, by several threads.

Files are cut into pieces by their sizes, which threads read and sum (`Source.read_summed`); the sums of the pieces give that of the record.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from flambeau import devices, settings
from flambeau.kernels import arrays
from flambeau.serialization.checksum import combine
from flambeau.serialization.zip_reader import Record, ZipReader

PIECE = 8 << 20  # bytes
MOST_THREADS = 8
WORTH_THREADS = 4 << 20  # bytes of an archive


class RecordReader:
    """Gives the memory of records; as a context manager, it ends its threads. `damaged` says what had the wrong checksum."""

    def __init__(self, archive: ZipReader):
        self.archive = archive
        self.memories: dict[str, Any] = {}
        self.pieces: dict[str, list[tuple[Future | int, int]]] = {}  # (checksum, length)
        self.pool: ThreadPoolExecutor | None = None
        self.waiting: list[Record] | None = None
        threads = min(settings.get_num_threads(), MOST_THREADS)
        if threads > 1 and archive.source.parallel and archive.source.size >= WORTH_THREADS:
            self.pool = ThreadPoolExecutor(threads, "flambeau.load")

    def __enter__(self) -> RecordReader:
        return self

    def __exit__(self, *exc: Any) -> None:
        if self.pool is not None:
            self.pool.shutdown(wait=True, cancel_futures=True)

    def memory(self, record: Record, ahead: bool) -> np.ndarray:
        """The bytes of a record. With `ahead`, those of all other storages are read from now on, too: somebody will ask for them."""
        if ahead and self.pool is not None and self.waiting is None:
            self.waiting = sorted((r for n, r in self.archive.records.items() if n.startswith("data/")), key=lambda r: r.start)
            for other in self.waiting:
                self._start(other)
        if record.name not in self.memories:
            self._start(record)
        for checksum, _ in self.pieces[record.name]:
            if isinstance(checksum, Future):
                checksum.result()
        return self.memories[record.name]

    def damaged(self, waiting: bool = True) -> Sequence[Record]:
        """The records that do not have their checksum; without `waiting`, among those that have been read so far."""
        if not self.archive.has_checksums:
            return []
        read = [name for name in self.pieces if waiting or self._is_read(name)]
        return [self.archive.records[name] for name in read if self._sum(name) != self.archive.records[name].crc]

    def _is_read(self, name: str) -> bool:
        jobs = [job for job, _ in self.pieces[name] if isinstance(job, Future)]
        return all(job.done() and not job.exception() for job in jobs)

    def _start(self, record: Record) -> None:
        if record.name in self.memories:
            return
        memory = arrays.empty((record.size,), np.dtype(np.uint8), devices.cpu)
        view = memoryview(memory)
        self.memories[record.name] = memory
        self.pieces[record.name] = pieces = []
        read = self.archive.source.read_summed
        for at in range(0, record.size, PIECE):
            piece = view[at : at + PIECE]
            job: Future | int = self.pool.submit(read, record.start + at, piece) if self.pool else read(record.start + at, piece)
            pieces.append((job, len(piece)))

    def _sum(self, name: str) -> int:
        total = 0
        for checksum, length in self.pieces[name]:
            total = combine(total, checksum.result() if isinstance(checksum, Future) else checksum, length)
        return total
