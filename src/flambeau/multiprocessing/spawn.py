"""spawn: one function in several processes; the first that fails ends the others, and its traceback is raised here."""

from __future__ import annotations

import multiprocessing
import signal
import time
import traceback
from multiprocessing import connection
from typing import Any

__all__ = [
    "ProcessContext",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "spawn",
    "start_processes",
]


def spawn(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn") -> ProcessContext | None:
    """Run fn(i, *args) in processes i = 0 ... nprocs - 1. Waits for all of them, or with join=False returns a `ProcessContext`."""
    return start_processes(fn, args, nprocs, join, daemon, start_method)


def start_processes(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn") -> ProcessContext | None:
    """`spawn` with any start method: "spawn", "fork" or "forkserver"."""
    context: Any = multiprocessing.get_context(start_method)
    processes, errors = [], []
    for i in range(nprocs):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(fn, i, args, sender), daemon=daemon)
        process.start()
        sender.close()
        processes.append(process)
        errors.append(receiver)
    running = ProcessContext(processes, errors)
    if not join:
        return running
    while not running.join():
        pass
    return None


def _run(fn, i: int, args: tuple, sender: connection.Connection) -> None:
    """What each process does. KeyboardInterrupt is for the parent to tell."""
    try:
        fn(i, *args)
    except KeyboardInterrupt:
        pass
    except Exception:
        sender.send(traceback.format_exc())
        raise SystemExit(1) from None


class ProcessException(Exception):
    """A process that `spawn` started has failed: number `error_index`, with the pid `error_pid`."""

    def __init__(self, msg: str, error_index: int, pid: int) -> None:
        super().__init__(msg)
        self.msg, self.error_index, self.error_pid, self.pid = msg, error_index, pid, pid


class ProcessRaisedException(ProcessException):
    """It raised an exception, whose traceback is the message."""

    def __init__(self, msg: str, error_index: int, error_pid: int) -> None:
        super().__init__(msg, error_index, error_pid)

    def __reduce__(self):
        return type(self), (self.msg, self.error_index, self.error_pid)


class ProcessExitedException(ProcessException):
    """It was ended by a signal, or by exit."""

    def __init__(self, msg: str, error_index: int, error_pid: int, exit_code: int, signal_name: str | None = None) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name

    def __reduce__(self):
        return type(self), (self.msg, self.error_index, self.error_pid, self.exit_code, self.signal_name)


class ProcessContext:
    """The processes of one call of `spawn`."""

    def __init__(self, processes: list, errors: list) -> None:
        self.processes = processes
        self.errors = errors
        self.sentinels = {process.sentinel: i for i, process in enumerate(processes)}

    def pids(self) -> list[int]:
        """Their process ids."""
        return [int(process.pid) for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait until one of them ends, or for `timeout` seconds; True if all have. If one failed, the others are ended and its error is
        raised: they are asked to end, and after `grace_period` seconds (30 unless told) killed."""
        for sentinel in connection.wait(list(self.sentinels), timeout):
            i = self.sentinels.pop(sentinel)  # type: ignore[call-overload]
            self.processes[i].join()
            if self.processes[i].exitcode != 0:
                self._end_all(30 if grace_period is None else grace_period)
                raise self._error(i)
        return not self.sentinels

    def _end_all(self, grace: float) -> None:
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        until = time.monotonic() + grace
        for process in self.processes:
            process.join(max(0, until - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()

    def _error(self, i: int) -> ProcessException:
        process, told = self.processes[i], self.errors[i]
        try:
            text = told.recv() if told.poll() else None
        except EOFError:
            text = None
        if text is not None:
            return ProcessRaisedException(f"\n\n-- Process {i} terminated with the following error:\n{text}", i, process.pid)
        code = process.exitcode
        if code > 0:
            return ProcessExitedException(f"process {i} terminated with exit code {code}", i, process.pid, code)
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"<Unknown signal {-code}>"
        return ProcessExitedException(f"process {i} terminated with signal {name}", i, process.pid, code, name)


class SpawnContext(ProcessContext):
    """The old name of `ProcessContext`."""
