"""FileStore: a store in a file, for processes that share a disk and nothing else.

The file is the log of all steps that changed something, in their order, and each process repeats them on a table of its own. A process
writes under an exclusive lock of the whole file, after it has read what the others wrote. One that dies while it writes leaves a record
without its end, which the next one to write removes: what was complete before stays.
"""

from __future__ import annotations

import fcntl
import os
import time
import weakref
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import RLock

from flambeau.distributed.errors import DistStoreError
from flambeau.distributed.stores import steps
from flambeau.distributed.stores.frames import Malformed, pack, unpack
from flambeau.distributed.stores.stepped_store import SteppedStore
from flambeau.distributed.stores.steps import HIDDEN, STEPS, Contents, GoesOn, Missing, Step
from flambeau.distributed.stores.timeouts import nobody_set

MAGIC = b"flambeau store 1\n"  # how the file begins, so that no other file is taken for a store and overwritten
USERS, FINISHED = HIDDEN + b"users", HIDDEN + b"finished"
CHECKSUM = 4  # bytes after every frame
PAUSES = (0.001, 0.002, 0.005, 0.01)  # seconds between looks at the file, while waiting


class FileStore(SteppedStore):
    """Keys and values in the file `file_name`. The last of `world_size` processes to leave removes it; with -1, nobody does."""

    def __init__(self, file_name: str, world_size: int = -1):
        if not isinstance(file_name, (str, os.PathLike)):
            raise TypeError(f"FileStore: a path is expected, not {file_name!r}")
        self._log = _Log(os.fspath(file_name))
        self._world_size = int(world_size)
        self._log.run(steps.add, (USERS, b"1"))
        self._end = weakref.finalize(self, _leave, self._log, self._world_size, os.getpid())

    @property
    def path(self) -> str:
        """The file."""
        return self._log.path

    def clone(self) -> FileStore:
        return FileStore(self.path, self._world_size)

    def has_extended_api(self) -> bool:
        return False  # PyTorch says so, and programs branch on it; append, multi_get and multi_set work all the same

    def goodbye(self) -> None:
        self._end()

    def _run(self, step: Step, fields: Sequence[bytes], timeout: float) -> list[bytes]:
        if not self._end.alive:
            raise DistStoreError(f"{step.name}: this store at {self.path} has been left with goodbye(). Make a new FileStore")
        deadline = time.monotonic() + timeout
        looks = 0
        while True:
            try:
                return self._log.run(step, fields)
            except GoesOn as rest:
                step, fields = rest.step, rest.fields
                continue
            except Missing as missing:
                pause = PAUSES[min(looks, len(PAUSES) - 1)]
                looks += 1
                if time.monotonic() + pause > deadline:
                    raise nobody_set(step.name, missing.keys, fields, timeout) from None
            time.sleep(pause)


class _Log:
    """The file, and what it says up to where it was read last."""

    def __init__(self, path: str):
        self.path = path
        self.contents = Contents()
        self.place = 0  # 0 where not even the beginning has been read
        self.lock = RLock()  # threads of this process; the file's lock is for the other processes
        self.owner = os.getpid()
        self.file = self._open()

    def _open(self) -> int:
        try:
            return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as problem:
            raise DistStoreError(
                f"FileStore: cannot open {self.path}: {problem.strerror}. All processes must be able to create and write this file"
            ) from problem

    def run(self, step: Step, fields: Sequence[bytes]) -> list[bytes]:
        """Run a step on what the file says now, and write it down if it changes that."""
        if self.owner != os.getpid():  # a fork: a file that is open in both has one lock for both
            self.owner, self.lock, self.file = os.getpid(), RLock(), self._open()
        with self.lock, self._locked(fcntl.LOCK_EX if step.writes else fcntl.LOCK_SH):
            self._catch_up()
            try:
                answer = step.run(self.contents, *fields)
            except GoesOn:
                self._write(step, fields)
                raise
            finally:
                self.contents.changed.clear()
            if step.writes:
                self._write(step, fields)
            return answer

    @contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        fcntl.flock(self.file, kind)
        try:
            while self.place == 0 and not self._same():  # the last one of another group has removed the file between our open and our lock
                os.close(self.file)
                self.file = self._open()
                fcntl.flock(self.file, kind)
            yield
        finally:
            fcntl.flock(self.file, fcntl.LOCK_UN)

    def _same(self) -> bool:
        """Whether the path still leads to the file that is open."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self.file))
        except FileNotFoundError:
            return False

    def _catch_up(self) -> None:
        """Repeat what others have written since."""
        size = os.fstat(self.file).st_size
        if size < self.place:
            raise DistStoreError(
                f"FileStore: {self.path} has been cut from {self.place} to {size} bytes by another program. Choose a new file"
            )
        if size == self.place:
            return
        data = os.pread(self.file, size - self.place, self.place)
        begin = 0
        if self.place == 0:
            if not data.startswith(MAGIC):
                if MAGIC.startswith(data):
                    return  # whoever made the file died at once
                raise _no_store(self.path, f"it begins with {data[:16]!r}")
            begin = len(MAGIC)
        while begin < len(data):
            found = _record(memoryview(data)[begin:], self.path)
            if found is None:
                break  # its writer died, or (under a shared lock) nobody has cleaned up yet
            step, fields, length = found
            with suppress(GoesOn):
                step.run(self.contents, *fields)
            begin += length
        self.contents.changed.clear()
        self.place += begin

    def _write(self, step: Step, fields: Sequence[bytes]) -> None:
        frame = pack(step.number, fields)
        record = (b"" if self.place else MAGIC) + frame + zlib.crc32(frame).to_bytes(CHECKSUM, "big")
        if os.fstat(self.file).st_size > self.place:
            os.ftruncate(self.file, self.place)
        try:
            written = 0
            while written < len(record):
                written += os.pwrite(self.file, record[written:], self.place + written)
        except OSError as problem:  # a full disk: our table already has what the file has not
            os.ftruncate(self.file, self.place)
            self.contents, self.place = Contents(), 0
            raise DistStoreError(f"FileStore: cannot write to {self.path}: {problem.strerror}") from problem
        self.place += len(record)


def _record(data: memoryview, path: str) -> tuple[Step, list[bytes], int] | None:
    """The first record and its length, or None where its end is missing."""
    try:
        frame, size = unpack(data)
    except Malformed as problem:
        raise _no_store(path, str(problem)) from None
    if frame is None or len(data) < size + CHECKSUM:
        return None
    if zlib.crc32(data[:size]).to_bytes(CHECKSUM, "big") != data[size : size + CHECKSUM]:
        raise _no_store(path, "a checksum is wrong")
    code, _, fields = frame
    return STEPS[code], fields, size + CHECKSUM


def _no_store(path: str, why: str) -> DistStoreError:
    return DistStoreError(f"FileStore: {path} was not written by a FileStore ({why}). Choose a file that does not exist yet")


def _leave(log: _Log, world_size: int, owner: int) -> None:
    """Count out; the last one of all removes the file."""
    if os.getpid() != owner:  # a fork: its parent is still there
        os.close(log.file)
        return
    try:
        finished = int(log.run(steps.add, (FINISHED, b"1"))[0])
        users = int(log.run(steps.add, (USERS, b"-1"))[0])
        if users == 0 and world_size >= 0 and finished >= world_size:
            os.unlink(log.path)
    except (OSError, DistStoreError):
        pass  # the file is gone, or its disk: there is nothing to leave behind
    finally:
        os.close(log.file)
