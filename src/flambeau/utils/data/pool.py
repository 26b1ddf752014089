"""The worker processes of one iterator: started together, watched while it waits, ended with it.

Whoever waits for a batch waits for the processes too, so a worker that dies is noticed at once. Ending is closing the lines: a worker that
finds its line closed goes home. One that does not within seconds is terminated, then killed.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from flambeau.utils.data._utils import worker
from flambeau.utils.data.channel import HELD, Channel, Table

PATIENCE = 5.0  # seconds for a worker to finish the batch it is working on, once nobody wants it any more


class Pool:
    """Workers 0, 1, ... and the lines to them."""

    def __init__(self, context: Any, jobs: list[worker.Job]) -> None:
        if not hasattr(select, "poll"):
            raise NotImplementedError("worker processes need a system with poll(), such as Linux or macOS. Use num_workers=0")
        self.pid = os.getpid()
        self.closed = False
        self.processes: list[Any] = []
        self.tables: list[Table] = []
        self.finishing: set[int] = set()  # workers that were told that there is nothing more to do
        self.ended: set[int] = set()  # those of them that have gone: nothing more will come from them
        self.poll = select.poll()
        self.lines: dict[int, int] = {}  # descriptor of a line -> worker
        self.sentinels: dict[int, int] = {}  # descriptor that shows the end of a process -> worker
        try:
            self._start(context, jobs)
        except BaseException:
            self.shutdown()
            raise

    def _start(self, context: Any, jobs: list[worker.Job]) -> None:
        started: list[tuple[int, Any, Table]] = []
        try:
            if context.get_start_method() == "fork":
                for job in jobs:
                    started.append(_launch(context, job))
            else:
                # Starting waits until the new process has read its job: side by side, they wait for the slowest only.
                _side_by_side([lambda job=job: started.append(_launch(context, job)) for job in jobs])  # type: ignore[misc]
        finally:
            for _, process, table in sorted(started, key=lambda launched: launched[0]):
                self.processes.append(process)
                self.tables.append(table)
        for i, (process, table) in enumerate(zip(self.processes, self.tables, strict=True)):
            self.lines[table.channel.fileno()] = i
            self.sentinels[process.sentinel] = i
        for descriptor in (*self.lines, *self.sentinels):
            self.poll.register(descriptor, select.POLLIN)

    # -- messages

    def send(self, i: int, task: int | None, index: Any = None) -> None:
        """Give worker i a task (None: begin the next epoch), and the segments that are free again."""
        table = self.tables[i]
        try:
            table.channel.post(pickle.dumps((task, index, table.take_returned()), 5))
        except (BrokenPipeError, ConnectionResetError):
            self.report(i)
        if table.channel.unsent:
            self.poll.modify(table.channel.fileno(), select.POLLIN | select.POLLOUT)

    def receive(self, timeout: float | None) -> list[tuple[int, Any, Callable[[], Any]]]:
        """Wait for messages: (worker, note, function that unpacks the data) of each. Empty after `timeout` seconds.

        RuntimeError if a worker has died.
        """
        messages = []
        for descriptor, event in self.poll.poll(None if timeout is None else max(0, timeout) * 1000):
            if descriptor in self.lines:
                i = self.lines[descriptor]
                if event & select.POLLOUT and self.tables[i].channel.flush():
                    self.poll.modify(descriptor, select.POLLIN)
                if event & ~select.POLLOUT:
                    messages += self._read(i)
            else:
                i = self.sentinels[descriptor]
                self.poll.unregister(descriptor)
                while i not in self.ended and _is_readable(self.tables[i].channel):
                    messages += self._read(i)
                self._end(i)
        return messages

    def _read(self, i: int) -> list[tuple[int, Any, Callable[[], Any]]]:
        """The next message of worker i, if it has not ended."""
        try:
            return [(i, *self.tables[i].receive())]
        except (EOFError, ConnectionResetError):
            self._end(i)
            return []

    def _end(self, i: int) -> None:
        """Nothing will come from worker i any more: as it should be, or this is the moment to say so."""
        if i not in self.finishing:
            self.report(i)
        if i not in self.ended:
            self.ended.add(i)
            self.poll.unregister(self.tables[i].channel.fileno())

    def report(self, i: int) -> None:
        """End all workers, and say what happened to worker i."""
        process = self.processes[i]
        process.join(1)
        pid, code = process.pid, process.exitcode
        self.shutdown()
        raise RuntimeError(f"DataLoader worker (pid(s) {pid}) exited unexpectedly: worker {i} {_what_happened(code)}") from None

    # -- the end

    def finish(self, i: int) -> None:
        """Tell worker i that it may go when it has answered everything."""
        if i not in self.finishing and not self.tables[i].channel.unsent:
            self.finishing.add(i)
            self.tables[i].channel.no_more()

    def shutdown(self) -> None:
        """End all workers, and wait until they are gone."""
        if self.closed or os.getpid() != self.pid:  # a forked child has no part in the processes of its parent
            return
        self.closed = True
        for table in self.tables:
            worker.OWNED.discard(table.channel)
            table.channel.close()
        _await(self.processes, PATIENCE)
        for end in ("terminate", "kill"):
            left = [process for process in self.processes if process.is_alive()]
            for process in left:
                getattr(process, end)()
            _await(left, 2.0)


def _launch(context: Any, job: worker.Job) -> tuple[int, Any, Table]:
    """(number, process, table) of a worker that has been started."""
    ours, theirs = Channel.pair()
    worker.OWNED.add(ours)
    process = context.Process(target=worker.run, args=(theirs, job), daemon=True)
    try:
        with _starting(context.get_start_method()):
            process.start()
    except BaseException as problem:
        worker.OWNED.discard(ours)
        ours.close()
        if isinstance(problem, (TypeError, AttributeError, pickle.PicklingError)):
            hint = "data set, collate_fn and worker_init_fn are sent to it: functions inside others cannot be, or try multiprocessing_context='fork'"
            warnings.warn(f"Got pickle error when starting a worker of a DataLoader: {hint}", stacklevel=2)
        raise
    finally:
        theirs.close()
    return job.worker_id, process, Table(ours, max(HELD // job.num_workers, 4))


@contextlib.contextmanager
def _starting(start_method: str) -> Iterator[None]:
    """Keep Ctrl-C for later: a process that is being started would die of it with a traceback, before it has learned to ignore it.

    The new process begins with the signal blocked, and `worker.run` lets it in again. (A fork server would hand that on to everybody.)
    """
    if start_method == "forkserver":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with warnings.catch_warnings() if start_method == "fork" else contextlib.nullcontext():
            if start_method == "fork":
                # Python warns of a fork beside threads; ours survive it (the pool of kernels starts anew in the child).
                warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _is_readable(channel: Channel) -> bool:
    poll = select.poll()
    poll.register(channel.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _await(processes: list, seconds: float) -> None:
    until = time.monotonic() + seconds
    for process in processes:
        process.join(max(0, until - time.monotonic()))


def _side_by_side(actions: list[Callable[[], None]]) -> None:
    """Run each in a thread of its own; the first exception is raised when all are done."""
    problems: list[BaseException] = []

    def attempt(action: Callable[[], None]) -> None:
        try:
            action()
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=attempt, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]


def _what_happened(code: int | None) -> str:
    """A worker's exit code in words, with what is usually behind it."""
    if code is None:
        return "closed its line to the loader, but still runs"
    if code >= 0:
        return f"ended with exit code {code}: by exit() in the data set or the collate function, or by an error printed above"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unknown"
    hints = {
        "SIGKILL": ". The system does that when memory is short: try fewer workers, or smaller batches",
        "SIGSEGV": ", a crash in compiled code: num_workers=0 shows where",
        "SIGBUS": ", memory that could not be had: try fewer workers, or smaller batches",
    }
    return f"is killed by signal: {name} ({-code}){hints.get(name, '')}"
