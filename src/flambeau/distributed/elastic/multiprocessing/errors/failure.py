"""ProcessFailure: how one worker failed. ChildFailedError: that some did, and which one was the first.

The message of the error ends with the traceback of the rank that failed first: it is what the reader looks for, so it comes last.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from flambeau.distributed.elastic.multiprocessing.errors import error_file

__all__ = ["ChildFailedError", "ProcessFailure", "status_text"]

WIDTH = 80
ROWS = 32  # of the table
NO_FILE = "<N/A>"


def status_text(status: int) -> str:
    """An exit status in words: what a process returned, or the signal that ended it.

    >>> status_text(-9), status_text(3)
    ('SIGKILL', 'exit 3')
    """
    if status >= 0:
        return f"exit {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


@dataclass
class ProcessFailure:
    """How a worker failed: its exit status (negative for a signal), and what it wrote to its error file."""

    local_rank: int
    pid: int
    exitcode: int
    error_file: str
    error_file_data: dict[str, Any] = field(init=False)
    message: str | dict[str, Any] = field(init=False)
    timestamp: int = field(init=False)

    def __post_init__(self) -> None:
        self.asked = False  # whether the launcher ended it, because of another
        self.host = socket.gethostname()
        self.moment = time.time()  # finer than the time stamp: failures of one second must be told apart
        self.error_file_data = error_file.read(self.error_file) if self.error_file else {}
        if "message" in self.error_file_data:
            self.message, self.timestamp = self._get_error_data(self.error_file_data)
        else:
            self._set_no_reply_file()

    def _get_error_data(self, error_file_data: dict[str, Any]) -> tuple[Any, int]:
        message = error_file_data["message"]
        extra = message.get("extraInfo", {}) if isinstance(message, dict) else {}
        self.moment = os.path.getmtime(self.error_file)
        return message, int(extra.get("timestamp", error_file_data.get("timestamp", self.moment)))

    def _set_no_reply_file(self) -> None:
        self.error_file = NO_FILE
        self.error_file_data = {"message": "<NONE>"}
        self.timestamp = int(self.moment)
        if self.exitcode < 0:
            self.message = f"Signal {-self.exitcode} ({self.signal_name()}) received by PID {self.pid}"
        else:
            self.message = f"ended with exit status {self.exitcode}, and left no traceback: its own output says more"

    @classmethod
    def elsewhere(cls, said: dict[str, Any]) -> ProcessFailure:
        """The failure of a worker of another machine, as its agent tells it."""
        failure = cls(said.get("local_rank", -1), said["pid"], said["status"], "")
        failure.host, failure.moment = said["node"], said.get("at", failure.moment)
        failure.timestamp = int(failure.moment)
        failure.message = said.get("story") or failure.message
        return failure

    def ended_at(self, moment: float) -> ProcessFailure:
        """The same, when it is known better when the process ended."""
        if self.error_file == NO_FILE:
            self.moment, self.timestamp = moment, int(moment)
        return self

    def signal_name(self) -> str:
        """The signal that ended it; "<N/A>" if none did."""
        return status_text(self.exitcode) if self.exitcode < 0 else NO_FILE

    def timestamp_isoformat(self) -> str:
        """When, in local time."""
        return datetime.fromtimestamp(self.timestamp).isoformat(sep="_")

    @property
    def story(self) -> str:
        """The traceback, or the sentence there is instead of one."""
        if isinstance(self.message, dict):
            extra = self.message.get("extraInfo", {})
            return str(extra.get("py_callstack") or self.message.get("message", self.message)).rstrip("\n")
        return self.message


class ChildFailedError(Exception):
    """Workers failed. `failures` tells how, by rank; the message is a table of them, and the traceback of the first to fail."""

    def __init__(self, name: str, failures: dict[int, ProcessFailure]) -> None:
        if not failures:
            raise AssertionError("ChildFailedError needs at least one failure")
        self.name = name
        self.failures = failures
        super().__init__(self.format_msg())

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, self.failures)

    def get_first_failure(self) -> tuple[int, ProcessFailure]:
        """(rank, failure) of the rank that failed first."""
        rank = min(self.failures, key=lambda r: (self.failures[r].asked, self.failures[r].moment))
        return rank, self.failures[rank]

    def format_msg(self, boarder_delim: str = "=", section_delim: str = "-") -> str:
        """The report: a table of the ranks that failed, then the traceback of the first."""
        rank, first = self.get_first_failure()
        who = f"rank {rank}" if rank >= 0 else f"machine {first.host}"
        lines = ["", boarder_delim * WIDTH, f"{self.name} FAILED: {who} was the first", section_delim * WIDTH]
        lines += table(self.failures, rank)
        lines += [section_delim * WIDTH, *([f"{who}:", first.story] if "\n" in first.story else [f"{who}: {first.story}"])]
        return "\n".join(lines)


def table(failures: dict[int, ProcessFailure], first: int) -> list[str]:
    """A line for each rank, the first to fail marked; of very many, those that failed by themselves."""
    shown = sorted(failures.items())
    if len(shown) > ROWS:
        shown = ([one for one in shown if not one[1].asked] or shown)[:ROWS]
    cells = [("rank", "local", "host", "pid", "ended with", "time", "error file")]
    for rank, one in shown:
        how = status_text(one.exitcode) + (" (asked to end)" if one.asked else "")
        mark, file = "*" if rank == first else "", "" if one.error_file == NO_FILE else one.error_file
        numbers = (f"{rank}{mark}", str(one.local_rank), one.host, str(one.pid))
        cells.append((*(numbers if rank >= 0 else (f"all{mark}", "", one.host, "")), how, one.timestamp_isoformat(), file))
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    return [*lines, *([f"... and {len(failures) - len(shown)} more"] if len(shown) < len(failures) else [])]
