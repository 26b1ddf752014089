"""PContext: the processes of one start of a group, with their output and errors. RunProcsResult: how they ended.

`on_failure` is called as soon as a process has failed, before the others are ended: who waits for it in a collective can be told.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flambeau.distributed.elastic.multiprocessing.errors import ProcessFailure
from flambeau.distributed.elastic.multiprocessing.logs import LogsSpecs
from flambeau.distributed.elastic.multiprocessing.signals import hand_back, raise_on_signals
from flambeau.distributed.elastic.multiprocessing.tail_log import TailLog, every_line

__all__ = ["PContext", "RunProcsResult"]

TELLING = 1.8  # seconds in which the others may learn of a failure and end by themselves, saying whom they miss
GRACE = 2.2  # seconds from asking them to end to killing them: 5 after the failure everything is over, on a busy machine, too


@dataclass
class RunProcsResult:
    """How all ended, by local rank: what functions returned, how processes failed, and the files of their output ("" if there is none)."""

    return_values: dict[int, Any] = field(default_factory=dict)
    failures: dict[int, ProcessFailure] = field(default_factory=dict)
    stdouts: dict[int, str] = field(default_factory=dict)
    stderrs: dict[int, str] = field(default_factory=dict)

    def is_failed(self) -> bool:
        """Whether any has failed."""
        return bool(self.failures)


class PContext(ABC):
    """Processes numbered by local rank. `args` and `envs` have an entry for each."""

    def __init__(
        self,
        name: str,
        entrypoint: Callable | str,
        args: dict[int, tuple],
        envs: dict[int, dict[str, str]],
        logs_specs: LogsSpecs,
        log_line_prefixes: dict[int, str] | None = None,
        duplicate_stdout_filters: list[str] | None = None,
        duplicate_stderr_filters: list[str] | None = None,
    ) -> None:
        self.name = name
        self.entrypoint = entrypoint
        self.args = args
        self.envs = envs
        self.nprocs = len(args)
        _validate_full_rank(args, self.nprocs, "args")
        _validate_full_rank(envs, self.nprocs, "envs")
        self.files = logs_specs.reify(envs)
        self.on_failure: Callable[[int, ProcessFailure], None] | None = None
        self.after_failure = GRACE
        self._handlers: dict[int, Any] = {}
        out, err = self.files.tee_stdouts, self.files.tee_stderrs
        self._tails = [TailLog(name, out, sys.stdout, log_line_prefixes), TailLog(name, err, sys.stderr, log_line_prefixes)]
        self._copies: list[Any] = []
        for filters, sources, copy in (
            (duplicate_stdout_filters, out, self.files.filtered_stdout),
            (duplicate_stderr_filters, err, self.files.filtered_stderr),
        ):
            if filters and copy:
                self._copies.append(open(copy, "w", encoding="utf-8"))  # noqa: SIM115 - closed with the context
                self._tails.append(TailLog(name, sources, self._copies[-1], log_line_prefixes, log_line_filter=mentions(filters)))

    def start(self) -> None:
        """Start them. From now on signals to this process raise SignalException."""
        self._handlers = raise_on_signals()
        self._start()
        for tail in self._tails:
            tail.start()

    @abstractmethod
    def _start(self) -> None:
        """Start the processes."""

    @abstractmethod
    def _poll(self) -> RunProcsResult | None:
        """How all ended, if they have or one has failed; the others are ended then. None while they run."""

    def wait(self, timeout: float = -1, period: float = 1) -> RunProcsResult | None:
        """Wait until all have ended, or one has failed; for `timeout` seconds if that is not negative, and None after those."""
        until = sys.maxsize if timeout < 0 else time.monotonic() + timeout
        while True:
            result = self._poll()
            if result is not None or timeout == 0 or time.monotonic() > until:
                return result
            self._sleep(period if timeout < 0 else min(period, max(until - time.monotonic(), 0)))

    def _sleep(self, seconds: float) -> None:
        """Wait for something to happen, at most so long."""
        time.sleep(seconds)

    @abstractmethod
    def pids(self) -> dict[int, int]:
        """Their process ids, by local rank."""

    @abstractmethod
    def _close(self, death_sig: signal.Signals, timeout: float = 30) -> None:
        """End what is left."""

    def close(self, death_sig: signal.Signals | None = None, timeout: float = 30) -> None:
        """End what is left with this signal (SIGTERM), or after `timeout` seconds with SIGKILL; then show the rest of the output."""
        try:
            self._close(death_sig or signal.SIGTERM, timeout)
        finally:
            for tail in self._tails:
                tail.stop()
            while self._copies:
                self._copies.pop().close()
            hand_back(self._handlers)
            self._handlers = {}

    def _result(self, values: dict[int, Any], failures: dict[int, ProcessFailure]) -> RunProcsResult:
        return RunProcsResult(values, failures, _names(self.files.stdouts, self.nprocs), _names(self.files.stderrs, self.nprocs))

    def _failed(self, local_rank: int, failure: ProcessFailure) -> ProcessFailure:
        if self.on_failure is not None:
            self.on_failure(local_rank, failure)
        return failure


def mentions(words: list[str]) -> Callable[[str], bool]:
    """Whether a line contains one of these words."""
    return (lambda line: any(word in line for word in words)) if words else every_line


def _names(files: dict[int, str], count: int) -> dict[int, str]:
    return {rank: files.get(rank, "") for rank in range(count)}


def _validate_full_rank(d: dict[int, Any], nprocs: int, what: str) -> None:
    if set(d) != set(range(nprocs)):
        raise RuntimeError(f"{what}: expected an entry for each local rank 0 to {nprocs - 1}, found {sorted(d)}")


def output(path: str | None, inherited: int) -> int:
    """A descriptor to write a stream to: a new file, or the launcher's own stream."""
    if path:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    return os.dup(inherited)
