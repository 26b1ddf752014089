"""Workers: the processes of one launcher on this machine, started and watched through their guardian (guardian.py)."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Ended", "Workers"]

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "guardian.py")


@dataclass
class Ended:
    """How a worker ended: its exit status, or minus the signal, and when (seconds since the epoch)."""

    status: int
    at: float


class Workers:
    """Processes by number. `ended` fills as they end, in their order; `wait` returns as soon as one more has."""

    def __init__(self) -> None:
        if os.name != "posix":
            raise NotImplementedError(
                f"the launcher needs process groups, which {os.name} has not. Run the program as one process, or on Linux or macOS"
            )
        self.pids: dict[int, int] = {}
        self.ended: dict[int, Ended] = {}
        self._failed: dict[int, OSError] = {}
        self._unread = b""
        self._swept: int | None = None
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._guardian = subprocess.Popen(
                [sys.executable, "-I", "-S", SCRIPT, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )

    def start(self, number: int, command: Sequence[str], environment: dict[str, str], streams: Sequence[int] = (0, 1, 2)) -> None:
        """Start a program; OSError if there is none. `streams` are the descriptors of its standard input, output and error."""
        self.ask_to_start(number, command, environment, streams)
        self.wait_until_started([number])

    def ask_to_start(self, number: int, command: Sequence[str], environment: dict[str, str], streams: Sequence[int] = (0, 1, 2)) -> None:
        """The first half of `start`: several programs start side by side."""
        order = {"start": number, "command": list(command), "environment": environment, "folder": os.getcwd()}
        data = json.dumps(order).encode() + b"\n"
        sent = socket.send_fds(self._socket, [data], list(streams))
        self._socket.sendall(data[sent:])

    def wait_until_started(self, numbers: Sequence[int]) -> None:
        """The second half of `start`."""
        while not all(number in self.pids or number in self._failed for number in numbers):
            self._listen(None)
        for number in numbers:
            if problem := self._failed.pop(number, None):
                raise problem

    def wait(self, seconds: float | None) -> bool:
        """Wait until another worker has ended, or for so long; whether one has."""
        before = len(self.ended)
        until = None if seconds is None else time.monotonic() + seconds
        while len(self.ended) == before and len(self.ended) < len(self.pids):
            left = None if until is None else until - time.monotonic()
            if not self._listen(None if left is None else max(left, 0)) and left is not None and left <= 0:
                break
        return len(self.ended) > before

    def running(self) -> list[int]:
        """The numbers of workers that have not ended."""
        return [number for number in self.pids if number not in self.ended]

    def send(self, which: int, numbers: Sequence[int] | None = None) -> None:
        """Send a signal to workers and what they have started."""
        for number in self.running() if numbers is None else numbers:
            if number not in self.ended:
                self._order({"signal": number, "which": int(which)})

    def end(self, first: int = signal.SIGTERM, grace: float = 3.0) -> None:
        """Ask all to end; kill those that have not within `grace` seconds, and everything they have left behind."""
        with contextlib.suppress(OSError):
            self.send(first)
            until = time.monotonic() + grace
            while self.running() and time.monotonic() < until:
                self.wait(max(until - time.monotonic(), 0))
            self.sweep(signal.SIGKILL)
            while self.running():
                self.wait(None)

    def sweep(self, which: int) -> int:
        """Send a signal to all processes that descend from workers; how many there were."""
        self._swept = None
        self._order({"sweep": int(which)})
        while self._swept is None:
            self._listen(None)
        return self._swept

    def close(self, *, leave: bool = False) -> None:
        """End the guardian, and what descends from the workers; `leave` lets it live on."""
        if leave:
            with contextlib.suppress(OSError):
                self._order({"leave": True})
        self._socket.close()
        self._guardian.wait()

    def _order(self, order: dict[str, Any]) -> None:
        self._socket.sendall(json.dumps(order).encode() + b"\n")

    def _listen(self, seconds: float | None) -> bool:
        """Take in what the guardian says next; False if it says nothing for so long."""
        ready, _, _ = select.select([self._socket], [], [], seconds)
        if not ready:
            return False
        data = self._socket.recv(65536)
        if not data:
            self._without_guardian()
            return True
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            self._take(json.loads(line))
        return True

    def _take(self, word: dict[str, Any]) -> None:
        if "started" in word:
            self.pids[word["started"]] = word["pid"]
        elif "failed" in word:
            self._failed[word["failed"]] = OSError(word["errno"], word["why"])
        elif "ended" in word:
            self.ended[word["ended"]] = Ended(word["status"], word["at"])
        else:
            self._swept = word["swept"]

    def _without_guardian(self) -> None:
        """Somebody has killed the guardian, and the kernel the workers with it."""
        self._swept = 0
        for number in self.running():
            self.ended[number] = Ended(-signal.SIGKILL, time.time())
