"""The worker processes of one iterator: started together, watched while it waits, ended with it.

Whoever waits for a batch waits for the processes too, so a worker that dies is noticed at once. Ending is closing the lines: a worker that
finds its line closed goes home. One that does not within seconds is terminated, then killed.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

from flambeau.utils.data._utils import worker
from flambeau.utils.data.channel import Channel, Table

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
        self.poll = select.poll()
        self.lines: dict[int, int] = {}  # descriptor of a line -> worker
        self.sentinels: dict[int, int] = {}  # descriptor that shows the end of a process -> worker
        try:
            self._start(context, jobs)
        except BaseException:
            self.shutdown()
            raise

    def _start(self, context: Any, jobs: list[worker.Job]) -> None:
        if context.get_start_method() == "fork":
            for job in jobs:
                self._launch(context, job)
        else:
            # Starting waits until the new process has read its job: side by side, they wait for the slowest only.
            _side_by_side([lambda job=job: self._launch(context, job) for job in jobs])  # type: ignore[misc]
            order = sorted(range(len(jobs)), key=lambda i: self.processes[i].worker_id)
            self.processes, self.tables = [self.processes[i] for i in order], [self.tables[i] for i in order]
        for i, (process, table) in enumerate(zip(self.processes, self.tables, strict=True)):
            self.lines[table.channel.fileno()] = i
            self.sentinels[process.sentinel] = i
        for descriptor in (*self.lines, *self.sentinels):
            self.poll.register(descriptor, select.POLLIN)

    def _launch(self, context: Any, job: worker.Job) -> None:
        ours, theirs = Channel.pair()
        worker.OWNED.add(ours)
        process = context.Process(target=worker.run, args=(theirs, job), daemon=True)
        process.worker_id = job.worker_id
        try:
            with warnings.catch_warnings():
                # Python warns of a fork beside threads; ours survive it (the pool of kernels starts anew in the child).
                warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
                process.start()
        except BaseException:
            worker.OWNED.discard(ours)
            ours.close()
            raise
        finally:
            theirs.close()
        self.tables.append(Table(ours))
        self.processes.append(process)

    # -- messages

    def send(self, i: int, task: int | None, index: Any = None) -> None:
        """Give worker i a task (None: begin the next epoch), and the segments that are free again."""
        table = self.tables[i]
        returned, table.returned = table.returned, []
        try:
            table.channel.post(pickle.dumps((task, index, returned), 5))
        except (BrokenPipeError, ConnectionResetError):
            self._report(i)
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
                    try:
                        messages.append((i, *self.tables[i].receive()))
                    except (EOFError, ConnectionResetError):
                        self._forget(descriptor, i)
            elif descriptor in self.sentinels:
                self._forget(descriptor, self.sentinels[descriptor])
        return messages

    def _forget(self, descriptor: int, i: int) -> None:
        """A line or a process has ended: as it should, or this is the moment to say so."""
        self.poll.unregister(descriptor)
        if descriptor in self.sentinels or i not in self.finishing:
            self.processes[i].join(1)  # the line ends a moment before the process does
            if i not in self.finishing or self.processes[i].exitcode:
                self._report(i)

    def _report(self, i: int) -> None:
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
