"""Fate: how a process of this machine came to its end, asked by one that is not its parent.

Linux tells whoever may trace it while its parent has not asked yet (`/proc`), and from 6.15 on everybody who had it open before (`pidfd`).
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
from contextlib import suppress

GET_INFO = 0xC040FF0B  # _IOWR(0xFF, 11, 64 bytes)
INFO = struct.Struct("=QQ11Ii")  # what is asked for and answered, the cgroup, eleven ids, the wait status
EXIT = 1 << 3  # of the first: how it ended
ZOMBIE, STATUS = 0, 49  # places in /proc/<pid>/stat, counted behind the name


class Fate:
    """Of the process `pid`, which is running now. `status()` says how it ended."""

    def __init__(self, pid: int):
        self.pid = pid
        self.descriptor: int | None = None
        with suppress(OSError, AttributeError):  # another system, or it has ended already
            self.descriptor = os.pidfd_open(pid)

    def has_come(self) -> bool:
        """Whether the process is known to have ended."""
        if self.descriptor is None:
            return False
        ended = select.poll()
        ended.register(self.descriptor, select.POLLIN)
        return bool(ended.poll(0))

    def status(self) -> int | None:
        """The exit status, or minus the signal that ended it; None if that cannot be known, or it has not ended."""
        found = self._from_proc()
        if found is None:
            found = self._from_descriptor()
        return None if found is None else os.waitstatus_to_exitcode(found)

    def close(self) -> None:
        """Nobody will ask any more."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    def _from_proc(self) -> int | None:
        with suppress(OSError), open(f"/proc/{self.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
            if fields[ZOMBIE] == "Z":
                return int(fields[STATUS])
        return None

    def _from_descriptor(self) -> int | None:
        if self.descriptor is None:
            return None
        try:
            said = INFO.unpack(fcntl.ioctl(self.descriptor, GET_INFO, INFO.pack(EXIT, *[0] * 13)))
        except OSError:  # an older kernel, or it is still running
            return None
        return int(said[-1]) if said[0] & EXIT else None
