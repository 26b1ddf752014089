"""spawn: one function in several processes; the first that fails ends the others, and its traceback is raised here."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
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
ENV_VAR_PARALLEL_START = "TORCH_MP_PARALLEL_START"
log = logging.getLogger(__name__)


def spawn(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn") -> ProcessContext | None:
    """Run fn(i, *args) in processes i = 0 ... nprocs - 1. Waits for all of them, or with join=False returns a `ProcessContext`."""
    return start_processes(fn, args, nprocs, join, daemon, start_method)


def start_processes(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn") -> ProcessContext | None:
    """`spawn` with any start method: "spawn", "fork" or "forkserver"; the last starts all at once if TORCH_MP_PARALLEL_START is 1."""
    context: Any = multiprocessing.get_context(start_method)
    parent = None if context.get_start_method() == "forkserver" else os.getpid()  # else it is the server's, which ends with this process

    def start(i: int) -> tuple[Any, Any]:
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(fn, i, args, sender, parent), daemon=daemon)
        process.start()
        sender.close()
        return process, receiver

    at_once = start_method == "forkserver" and os.environ.get(ENV_VAR_PARALLEL_START, "0") == "1"
    with ThreadPoolExecutor(max(nprocs, 1) if at_once else 1) as threads:
        started = list((threads.map if at_once else map)(start, range(nprocs)))
    running = ProcessContext([process for process, _ in started], [receiver for _, receiver in started])
    if not join:
        return running
    while not running.join():
        pass
    return None


def _run(fn, i: int, args: tuple, sender: connection.Connection, parent: int | None) -> None:
    """What each process does. KeyboardInterrupt is for the parent to tell."""
    end_with(parent)
    try:
        fn(i, *args)
    except KeyboardInterrupt:
        pass
    except Exception:
        sender.send(traceback.format_exc())
        raise SystemExit(1) from None


def end_with(parent: int | None, how: int = signal.SIGINT) -> None:
    """Have Linux interrupt this process when its parent ends, however that ends: nobody is left to wait for it."""
    if sys.platform != "linux":
        return
    import ctypes

    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, how)
    if parent is not None and os.getppid() != parent:  # it was quicker
        os.kill(os.getpid(), how)


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
        self._listening = {receiver: i for i, receiver in enumerate(errors)}
        self._told: dict[int, str] = {}

    def pids(self) -> list[int]:
        """Their process ids."""
        return [int(process.pid) for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait until one of them ends, or for `timeout` seconds; True if all have. If one failed, the others are ended and its error is
        raised: they have `grace_period` seconds, if there is one, to end by themselves, are then asked to, and killed after as long again (30)."""
        until = None if timeout is None else time.monotonic() + timeout
        while self.sentinels:
            # A process that has a long story to tell cannot end before somebody listens: so pipes are read as soon as there is something in them.
            ready = connection.wait([*self.sentinels, *self._listening], None if until is None else max(0, until - time.monotonic()))
            for receiver in [r for r in ready if r in self._listening]:
                self._listen(receiver)
            ended = [self.sentinels.pop(sentinel) for sentinel in ready if sentinel in self.sentinels]  # type: ignore[call-overload]
            for i in ended:
                self.processes[i].join()
                if self.processes[i].exitcode != 0:
                    self._end_all(grace_period)
                    raise self._error(i)
            if ended or not ready:
                break
        return not self.sentinels

    def _listen(self, receiver: Any) -> None:
        i = self._listening.pop(receiver)
        with contextlib.suppress(EOFError):
            self._told[i] = receiver.recv()
        receiver.close()

    def _end_all(self, grace: float | None) -> None:
        if grace is not None:
            self._alive_after(grace)
        for process in self._alive_after(0):
            log.warning("Terminating process %s via signal SIGTERM", process.pid)
            process.terminate()
        for process in self._alive_after(30 if grace is None else grace):
            log.warning("Unable to shutdown process %s via SIGTERM, forcefully exiting via SIGKILL", process.pid)
            process.kill()
            process.join()

    def _alive_after(self, seconds: float) -> list:
        until = time.monotonic() + seconds
        for process in self.processes:
            process.join(max(0, until - time.monotonic()))
        return [process for process in self.processes if process.is_alive()]

    def _error(self, i: int) -> ProcessException:
        process = self.processes[i]
        if self.errors[i] in self._listening and self.errors[i].poll():
            self._listen(self.errors[i])
        text = self._told.get(i)
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
