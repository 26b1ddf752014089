"""SubprocessContext: workers that are programs."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Any

from flambeau.distributed.elastic.multiprocessing import context
from flambeau.distributed.elastic.multiprocessing.context import PContext, RunProcsResult
from flambeau.distributed.elastic.multiprocessing.errors import ProcessFailure
from flambeau.distributed.elastic.multiprocessing.logs import LogsSpecs
from flambeau.distributed.elastic.processes.outer_mpi import without_outer_mpi
from flambeau.distributed.elastic.processes.startup_folder import listened_to
from flambeau.distributed.elastic.processes.workers import Workers

__all__ = ["SubprocessContext"]


class SubprocessContext(PContext):
    """Runs `entrypoint` with the arguments of each local rank, in this process's environment and the one given over it."""

    def __init__(
        self,
        name: str,
        entrypoint: str,
        args: dict[int, tuple],
        envs: dict[int, dict[str, str]],
        logs_specs: LogsSpecs,
        log_line_prefixes: dict[int, str] | None = None,
        numa_options: Any = None,
        duplicate_stdout_filters: list[str] | None = None,
        duplicate_stderr_filters: list[str] | None = None,
    ) -> None:
        if numa_options is not None:
            raise NotImplementedError("numa_options: workers are not bound to processors. Start them with numactl: --no_python numactl ...")
        super().__init__(name, entrypoint, args, envs, logs_specs, log_line_prefixes, duplicate_stdout_filters, duplicate_stderr_filters)
        self._workers: Workers | None = None
        self._failures: dict[int, ProcessFailure] = {}

    def _start(self) -> None:
        if self._workers is not None:
            raise ValueError("the processes have been started already")
        self._workers = workers = Workers()
        for rank in range(self.nprocs):
            environment = {**without_outer_mpi(os.environ), **self.envs[rank]}
            if rank in self.files.error_files:
                environment["TORCHELASTIC_ERROR_FILE"] = self.files.error_files[rank]
                listened_to(environment)
            command = [str(self.entrypoint), *map(str, self.args[rank])]
            streams = [os.open(os.devnull, os.O_RDONLY) if _is_closed(0) else os.dup(0)]
            streams += [context.output(self.files.stdouts.get(rank), 1), context.output(self.files.stderrs.get(rank), 2)]
            try:
                workers.ask_to_start(rank, command, environment, streams)
            finally:
                for stream in streams:
                    os.close(stream)
        try:
            workers.wait_until_started(range(self.nprocs))
        except OSError as problem:
            workers.close()
            problem.filename = self.entrypoint
            raise

    def _poll(self) -> RunProcsResult | None:
        assert self._workers is not None, "start() comes first"
        self._notice()
        if self._failures:
            self._end_others()
        elif self._workers.running():
            return None
        values = {rank: None for rank, end in self._workers.ended.items() if end.status == 0}
        result = self._result(values, dict(self._failures))
        self.close()
        return result

    def _notice(self) -> None:
        """Take down failures that are new, in the order in which they came."""
        assert self._workers is not None
        self._workers.wait(0)
        for rank, end in list(self._workers.ended.items()):
            if end.status != 0 and rank not in self._failures:
                failure = ProcessFailure(rank, self._workers.pids[rank], end.status, self.files.error_files.get(rank, ""))
                self._failures[rank] = self._failed(rank, failure.ended_at(end.at))

    def _end_others(self) -> None:
        """Let the others find out by themselves for a moment, then end them."""
        assert self._workers is not None
        until = time.monotonic() + context.TELLING
        while self._workers.running() and time.monotonic() < until:
            self._workers.wait(until - time.monotonic())
            self._notice()
        asked = self._workers.running()
        self._workers.end(signal.SIGTERM, self.after_failure)
        self.on_failure = None
        self._notice()
        for rank in asked:
            if rank in self._failures:
                self._failures[rank].asked = True

    def _sleep(self, seconds: float) -> None:
        assert self._workers is not None
        self._workers.wait(seconds)

    def pids(self) -> dict[int, int]:
        """Their process ids, by local rank."""
        return {} if self._workers is None else dict(self._workers.pids)

    def _close(self, death_sig: signal.Signals, timeout: float = 30) -> None:
        workers, self._workers = self._workers, None
        if workers is None:
            return
        ended_well = not workers.running() and not self._failures
        try:
            workers.end(death_sig, timeout) if not ended_well else None
        except BaseException:  # asked again, as with a second Ctrl-C: no more patience
            with contextlib.suppress(OSError):
                workers.end(signal.SIGKILL, 0)
            raise
        finally:
            workers.close(leave=ended_well)


def _is_closed(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return True
    return False
