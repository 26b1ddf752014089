"""A lane of two processes: one framework, one thread setting, a world of ranks that is kept alive from case to case."""

from __future__ import annotations

import multiprocessing
import signal
import socket
from collections.abc import Mapping
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from time import monotonic
from typing import Any

from benchmarks.case import Case
from benchmarks.distributed import rank
from benchmarks.frameworks import Framework
from benchmarks.lane import LaneFailure
from benchmarks.worker import THREAD_VARIABLES

RANKS = 2
TIMEOUT_SECONDS = 60.0
ROUND_SECONDS = 0.020  # of calls in a round, or a single one that is longer


class WorldLane:
    """The parent's end of a world. Ranks that fail, die or hang cost their case, and all of them are started anew."""

    def __init__(self, framework: Framework, threads: int, environment: Mapping[str, str] | None = None) -> None:
        self.framework = framework
        self.threads = threads
        self.environment = environment or {}
        self._probe = False
        self._calls = 1
        self._processes: list[BaseProcess] = []
        self._pipes: list[Connection] = []

    def start(self) -> None:
        """Start the ranks without waiting for them."""
        spawn = multiprocessing.get_context("spawn")
        world = surroundings(self.threads) | dict(self.environment)
        for number in range(RANKS):
            ours, theirs = spawn.Pipe()
            environment = world | {"RANK": str(number), "LOCAL_RANK": str(number)}
            process = spawn.Process(target=rank.serve, args=(theirs, self.framework.module, environment), daemon=True)
            self._pipes.append(ours)
            self._processes.append(process)
            process.start()
            theirs.close()  # else the end of the rank would not be the end of the pipe

    def introduction(self) -> dict[str, Any]:
        """Wait until the group stands; the framework's version and device, or LaneFailure."""
        answers: list[dict[str, Any]] = self._receive()
        return answers[0]

    def prepare(self, case: Case) -> None:
        if not self._processes:
            self.start()
            self.introduction()
        self._probe = case.probe
        self._ask("prepare", case.name)
        if not case.probe:
            self._calibrate()

    def round(self) -> float:
        """Seconds for one call, or what a probe found; of the rank that has more of it."""
        if self._probe:
            return self._ask("run", 1)
        return self._ask("run", self._calls) / self._calls

    def stop(self) -> None:
        """End the ranks, by closing the pipes or, where they are deaf to that, by killing them."""
        for pipe in self._pipes:
            pipe.close()
        deadline = monotonic() + 5
        for process in self._processes:
            process.join(timeout=max(0.0, deadline - monotonic()))
        self._kill()

    def _calibrate(self) -> None:
        """How many calls fill a round. Everyone must make the same number of them, so the parent counts."""
        for _ in range(2):  # kernels are compiled, pools grow, and DDP puts its buckets into the order of the first backward
            self._ask("run", 1)
        self._calls = 1
        while (seconds := self._ask("run", self._calls)) < ROUND_SECONDS / 4:
            self._calls *= 4
        self._calls = max(1, round(self._calls * ROUND_SECONDS / seconds))

    def _ask(self, request: str, argument: str | int) -> float:
        try:
            for pipe in self._pipes:
                pipe.send((request, argument))
        except OSError:
            self._kill()
            raise LaneFailure("a rank is gone") from None
        return max(self._receive())

    def _receive(self) -> list[Any]:
        """The answer of every rank. One that fails leaves the others waiting for it, so the first failure ends all of them."""
        answers: dict[int, Any] = {}
        deadline = monotonic() + TIMEOUT_SECONDS
        while waiting := [pipe for number, pipe in enumerate(self._pipes) if number not in answers]:
            ready = wait(waiting, timeout=max(0.0, deadline - monotonic()))
            failure = "" if ready else f"no answer within {TIMEOUT_SECONDS:g} s"
            for pipe in ready:
                number = self._pipes.index(pipe)
                try:
                    kind, answers[number] = pipe.recv()
                    failure = f"rank {number}: {answers[number]}" if kind == "failed" else failure
                except (EOFError, ConnectionError):
                    failure = f"rank {number} ended {ending(self._processes[number])}"
            if failure:
                self._kill()
                raise LaneFailure(failure)
        return list(answers.values())

    def _kill(self) -> None:
        for process in self._processes:
            process.kill()  # does nothing to one that has ended
        for process in self._processes:
            process.join()
        self._processes, self._pipes = [], []


def ending(process: BaseProcess) -> str:
    """How: a crash should not be taken for something else."""
    process.join(timeout=5)
    code = process.exitcode
    return f"by {signal.Signals(-code).name}" if code is not None and code < 0 else f"with exit status {code}"


def surroundings(threads: int) -> dict[str, str]:
    """The environment that all ranks of a new world have in common."""
    world = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": str(RANKS)}
    return world | dict.fromkeys(THREAD_VARIABLES, str(threads))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
