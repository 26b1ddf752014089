"""MultiprocessContext: workers that run a function of this program."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from multiprocessing import connection
from typing import Any

from flambeau.distributed.elastic.multiprocessing import context
from flambeau.distributed.elastic.multiprocessing.context import PContext, RunProcsResult
from flambeau.distributed.elastic.multiprocessing.errors import ProcessFailure, record
from flambeau.distributed.elastic.multiprocessing.logs import LogsSpecs
from flambeau.distributed.elastic.multiprocessing.redirects import redirect
from flambeau.distributed.elastic.processes.outer_mpi import without_outer_mpi
from flambeau.multiprocessing.spawn import end_with

__all__ = ["MultiprocessContext"]


class MultiprocessContext(PContext):
    """Runs a function with the arguments and environment of each local rank; what it returns must be picklable."""

    def __init__(
        self,
        name: str,
        entrypoint: Callable,
        args: dict[int, tuple],
        envs: dict[int, dict[str, str]],
        start_method: str,
        logs_specs: LogsSpecs,
        log_line_prefixes: dict[int, str] | None = None,
        numa_options: Any = None,
        duplicate_stdout_filters: list[str] | None = None,
        duplicate_stderr_filters: list[str] | None = None,
    ) -> None:
        if numa_options is not None:
            raise NotImplementedError("numa_options: workers are not bound to processors. Call os.sched_setaffinity in the function")
        super().__init__(name, entrypoint, args, envs, logs_specs, log_line_prefixes, duplicate_stdout_filters, duplicate_stderr_filters)
        self.start_method = start_method
        self._processes: dict[int, Any] = {}
        self._pipes: dict[int, Any] = {}
        self._values: dict[int, Any] = {}
        self._failures: dict[int, ProcessFailure] = {}

    def _start(self) -> None:
        if self._processes:
            raise ValueError("the processes have been started already")
        import flambeau.multiprocessing  # noqa: F401 - teaches pickle how tensors travel

        make: Any = multiprocessing.get_context(self.start_method)
        parent = None if self.start_method == "forkserver" else os.getpid()
        for rank in range(self.nprocs):
            receiver, sender = make.Pipe(duplex=False)
            environment = {**self.envs[rank]}
            if rank in self.files.error_files:
                environment["TORCHELASTIC_ERROR_FILE"] = self.files.error_files[rank]
            files = {"stdout": self.files.stdouts.get(rank, ""), "stderr": self.files.stderrs.get(rank, "")}
            process = make.Process(target=_work, args=(self.entrypoint, self.args[rank], environment, files, sender, parent))
            process.start()
            sender.close()
            self._processes[rank], self._pipes[rank] = process, receiver

    def _poll(self) -> RunProcsResult | None:
        self._notice()
        if self._failures:
            self._end_others()
        elif any(process.exitcode is None for process in self._processes.values()):
            return None
        result = self._result(dict(self._values), dict(self._failures))
        self.close()
        return result

    def _notice(self) -> None:
        for rank, pipe in list(self._pipes.items()):
            if pipe.poll():
                with suppress(EOFError):
                    self._values[rank] = pipe.recv()
                self._pipes.pop(rank).close()
        for rank, process in self._processes.items():
            if process.exitcode and rank not in self._failures:
                failure = ProcessFailure(rank, process.pid, process.exitcode, self.files.error_files.get(rank, ""))
                self._failures[rank] = self._failed(rank, failure)

    def _end_others(self) -> None:
        until = time.monotonic() + context.TELLING
        while self._running() and time.monotonic() < until:
            self._sleep(until - time.monotonic())
            self._notice()
        asked = self._running()
        self._end(signal.SIGTERM, self.after_failure)
        self.on_failure = None
        self._notice()
        for rank in asked:
            if rank in self._failures:
                self._failures[rank].asked = True

    def _running(self) -> list[int]:
        return [rank for rank, process in self._processes.items() if process.exitcode is None]

    def _sleep(self, seconds: float) -> None:
        waiting = [*(self._processes[rank].sentinel for rank in self._running()), *self._pipes.values()]
        if waiting:
            connection.wait(waiting, max(seconds, 0))

    def _end(self, which: int, grace: float) -> None:
        for signal_now, patience in ((which, grace), (signal.SIGKILL, None)):
            for rank in self._running():
                with suppress(ProcessLookupError):
                    os.kill(self._processes[rank].pid, signal_now)
            until = None if patience is None else time.monotonic() + patience
            for process in self._processes.values():
                process.join(None if until is None else max(until - time.monotonic(), 0))

    def pids(self) -> dict[int, int]:
        """Their process ids, by local rank."""
        return {rank: process.pid for rank, process in self._processes.items()}

    def _close(self, death_sig: signal.Signals, timeout: float = 30) -> None:
        try:
            self._end(death_sig, timeout)
        except BaseException:  # asked again: no more patience
            self._end(signal.SIGKILL, 0)
            raise


def _work(fn: Callable, args: tuple, environment: dict[str, str], files: dict[str, str], sender: Any, parent: int | None) -> None:
    """What each process does."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):  # a fork has the launcher's
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    end_with(parent, signal.SIGKILL)
    for name in os.environ.keys() - without_outer_mpi(os.environ).keys():
        del os.environ[name]
    os.environ.update(environment)
    with ExitStack() as redirected:
        for stream, path in files.items():
            if path:
                redirected.enter_context(redirect(stream, path))
        try:
            value = record(fn)(*args)
        except Exception:
            sys.excepthook(*sys.exc_info())
            sys.stderr.flush()
            raise SystemExit(1) from None
    sender.send(value)
