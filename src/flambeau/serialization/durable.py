"""Replacing a file so that it cannot be lost: whoever looks at the name, at any moment and after any crash, finds the old file or the new
one, whole.

    temporary file in the same folder -> write -> fsync -> rename over the old one -> fsync of the folder

A failure at any step removes the temporary file and leaves the old one. Only a process that is killed leaves its temporary file behind
(`.name.xxxxxxxx.tmp`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import threading
from collections.abc import Iterator
from types import SimpleNamespace

# Every system call that changes something goes through this table, so that a test can make each of them fail.
calls = SimpleNamespace(
    open=os.open,
    write=os.write,
    fdatasync=getattr(os, "fdatasync", os.fsync),
    fsync=os.fsync,
    fchmod=getattr(os, "fchmod", None),
    fchown=getattr(os, "fchown", None),
    close=os.close,
    replace=os.replace,
    unlink=os.unlink,
)
LARGE = 32 << 20
SYNC_EVERY = 32 << 20  # bytes after which the disk is set to work while we go on: 0.3 s instead of 0.5 for 500 MB


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[Writer]:
    """A `Writer` of what shall be the file `path`, and is from the moment the block ends without an exception.

    A symbolic link stays one: the file it points at is replaced. An existing file hands down its permissions and, where that is allowed,
    its owner. Devices and pipes are written to as they are.
    """
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        raise RuntimeError(f"Parent directory {folder} does not exist. Try os.makedirs({folder!r}) first")
    before = _existing(target)
    if before is not None and not stat.S_ISREG(before.st_mode):
        with _writing_to(target) as writer:
            yield writer
        return
    temporary = os.path.join(folder, f".{os.path.basename(target)[:80]}.{secrets.token_hex(4)}.tmp")
    descriptor = calls.open(
        temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0), 0o666
    )
    old = None
    try:
        writer = Writer(descriptor)
        try:
            if before is not None:
                _inherit(descriptor, before)
            yield writer
            writer.flush()
        finally:
            writer.wait()
            calls.close(descriptor)
        old = _held(target, before)
        calls.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            calls.unlink(temporary)
        raise
    finally:
        if old is not None:
            threading.Thread(target=os.close, args=(old,), name="flambeau.save", daemon=True).start()
    _sync_folder(folder)


class Writer:
    """Writes to a file descriptor, and has the disk take what was written meanwhile."""

    def __init__(self, descriptor: int):
        self.descriptor = descriptor
        self.unsynced = 0
        self.helper: threading.Thread | None = None
        self.problem: OSError | None = None

    def write(self, data: bytes | memoryview) -> None:
        """Write all of it."""
        rest = memoryview(data)
        while rest:
            written = calls.write(self.descriptor, rest)
            self.unsynced += written
            rest = rest[written:]
        if self.unsynced >= SYNC_EVERY and (self.helper is None or not self.helper.is_alive()):
            self._raise_problem()
            self.unsynced = 0
            self.helper = threading.Thread(target=self._sync, name="flambeau.save", daemon=True)
            self.helper.start()

    def _sync(self) -> None:
        try:
            calls.fdatasync(self.descriptor)
        except OSError as problem:  # the system reports a lost page once: keep the report
            self.problem = problem

    def _raise_problem(self) -> None:
        if self.problem is not None:
            raise self.problem

    def wait(self) -> None:
        """Until no other thread uses the descriptor."""
        if self.helper is not None:
            self.helper.join()

    def flush(self) -> None:
        """Return when the disk has everything."""
        self.wait()
        self._raise_problem()
        calls.fsync(self.descriptor)


def _existing(target: str) -> os.stat_result | None:
    """What is there now. A file that may not be written is not replaced either, although its folder would allow that."""
    try:
        found = os.stat(target)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, "Is a directory: a file name is needed", target)
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "Permission denied: the file may not be written", target)
    return found


def _held(target: str, before: os.stat_result | None) -> int | None:
    """A descriptor of a large file that is about to be replaced. The system frees it with its last descriptor, which takes a fifth of a
    second for 500 MB, and a thread can wait for that."""
    if before is None or before.st_size < LARGE or os.name == "nt":
        return None
    try:
        return os.open(target, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return None


def _inherit(descriptor: int, before: os.stat_result) -> None:
    if calls.fchmod is None:
        return
    now = os.fstat(descriptor)
    if (before.st_uid, before.st_gid) != (now.st_uid, now.st_gid):
        with contextlib.suppress(PermissionError):
            calls.fchown(descriptor, before.st_uid, before.st_gid)
    calls.fchmod(descriptor, stat.S_IMODE(before.st_mode))


@contextlib.contextmanager
def _writing_to(target: str) -> Iterator[Writer]:
    descriptor = calls.open(target, os.O_WRONLY | getattr(os, "O_CLOEXEC", 0), 0o666)
    writer = Writer(descriptor)
    try:
        yield writer
    finally:
        writer.wait()
        calls.close(descriptor)


def _sync_folder(folder: str) -> None:
    """Make the new name of the file last. Systems that cannot sync a folder (EINVAL), or open one (Windows), do so by themselves."""
    if os.name == "nt":
        return
    descriptor = calls.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0))
    try:
        calls.fsync(descriptor)
    except OSError as problem:
        if problem.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        calls.close(descriptor)
