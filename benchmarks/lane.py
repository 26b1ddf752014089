"""A lane: one framework with one thread setting, as the runner sees it. Prepare a case in it, then ask for rounds.

`WorkerLane` times calls in a process of its own; `ProbeLane` asks for numbers that need no framework in memory.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

from benchmarks import worker
from benchmarks.case import Case
from benchmarks.frameworks import Framework

TIMEOUT_SECONDS = 180.0


class LaneFailure(Exception):
    """The framework could not run the case. The message is what the table shows."""


class Lane(Protocol):
    """What the runner needs of a lane."""

    framework: Framework
    threads: int | None

    def prepare(self, case: Case) -> None:
        """Get ready to time `case`, or raise LaneFailure."""

    def round(self) -> float:
        """One short measurement of the prepared case, in its unit, or raise LaneFailure."""


class StandingLane(Lane, Protocol):
    """A lane whose processes are started once and stay from case to case."""

    def start(self) -> None:
        """Start them without waiting."""

    def introduction(self) -> dict[str, Any]:
        """Wait for them; the framework's version and device, or LaneFailure."""

    def stop(self) -> None:
        """End them."""


class WorkerLane:
    """The parent's end of a worker process. A worker that dies or hangs costs its case, and is started anew."""

    def __init__(self, framework: Framework, device: str, threads: int | None) -> None:
        self.framework = framework
        self.device = device
        self.threads = threads
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None

    def start(self) -> None:
        """Start the process without waiting for it, so that slow imports run side by side."""
        spawn = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        arguments = (theirs, self.framework.module, self.device, self.threads)
        self._process = spawn.Process(target=worker.serve, args=arguments)
        self._process.start()
        theirs.close()  # else the end of the worker would not be the end of the pipe

    def introduction(self) -> dict[str, Any]:
        """Wait for the import; the framework's version and device, or LaneFailure."""
        answer: dict[str, Any] = self._receive()
        return answer

    def prepare(self, case: Case) -> None:
        if self._process is None:
            self.start()
            self.introduction()
        self._ask("prepare", case.name)

    def round(self) -> float:
        seconds: float = self._ask("round", None)
        return seconds

    def stop(self) -> None:
        """End the process, by closing the pipe or, if it is deaf to that, by killing it."""
        if self._process is None or self._pipe is None:
            return
        self._pipe.close()
        self._process.join(timeout=5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process = self._pipe = None

    def _ask(self, request: str, argument: str | None) -> Any:
        assert self._pipe is not None, "the lane is not started"
        try:
            self._pipe.send((request, argument))
        except OSError:
            raise self._lost() from None
        return self._receive()

    def _receive(self) -> Any:
        assert self._pipe is not None, "the lane is not started"
        try:
            if not self._pipe.poll(TIMEOUT_SECONDS):
                self._kill()
                raise LaneFailure(f"no answer within {TIMEOUT_SECONDS:g} s")
            kind, answer = self._pipe.recv()
        except (EOFError, OSError):
            raise self._lost() from None
        if kind == "failed":
            raise LaneFailure(answer)
        return answer

    def _lost(self) -> LaneFailure:
        assert self._process is not None
        self._process.join(timeout=5)
        code = self._process.exitcode
        self._kill()
        how = f"by {signal.Signals(-code).name}" if code is not None and code < 0 else f"with exit status {code}"
        return LaneFailure(f"the worker process ended {how}")

    def _kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self.stop()


class ProbeLane:
    """Numbers about the installed package, found from outside: the parent imports no framework for them."""

    threads: int | None = None

    def __init__(self, framework: Framework) -> None:
        self.framework = framework
        self._read: Callable[[], float] | None = None

    def prepare(self, case: Case) -> None:
        try:
            self._read = case.body(self.framework.package)
        except Exception as error:
            raise LaneFailure(worker.first_line(error)) from error

    def round(self) -> float:
        assert self._read is not None, "a round was asked for before a case was prepared"
        try:
            return self._read()
        except Exception as error:
            raise LaneFailure(worker.first_line(error)) from error
