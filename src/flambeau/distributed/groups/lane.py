"""Lane: the collectives of one group, one after the other, in the order in which they were called.

A call that waits for its result runs at once, on the thread that made it. One that does not, and whatever comes behind it, runs on the
thread of the lane, which starts with the first of them.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable

from flambeau.distributed.groups.work import Work


class Lane:
    """Runs steps in order. `name` is that of its thread, as profilers and debuggers show it."""

    def __init__(self, name: str):
        self.name = name
        self.busy = threading.Lock()  # held by whoever runs a step
        self.waiting: deque[tuple[Callable[[], None], Work]] = deque()
        self.changed = threading.Condition()
        self.running = False  # whether the thread has a step, or is about to take one
        self.thread: threading.Thread | None = None
        self.closed = False

    def now(self, step: Callable[[], None]) -> None:
        """Run a step, after those that came before it."""
        if self.waiting or self.running:  # asked in this order, because a step becomes running before it ceases to wait
            work = Work()
            self.later(step, work)
            self.reach(work)
            work.wait()
            return
        with self.busy:
            step()

    def reach(self, work: Work) -> None:
        """On the lane's own thread, where what follows a step may make calls and wait for them: nobody else runs the steps up to this one."""
        while self.on_own_thread() and not work.is_completed():
            self._take()

    def later(self, step: Callable[[], None], work: Work) -> None:
        """Run a step on the lane's thread, and finish `work` with it."""
        with self.changed:
            if self.thread is None or not self.thread.is_alive():
                self.thread = threading.Thread(target=_serve, args=(weakref.ref(self), self.changed), name=self.name, daemon=True)
                self.thread.start()
            self.waiting.append((step, work))
            self.changed.notify()

    def on_own_thread(self) -> bool:
        """Whether it is the lane's thread that asks."""
        return threading.current_thread() is self.thread

    def close(self) -> None:
        """Let the thread end when it has done what is waiting."""
        with self.changed:
            self.closed = True
            self.changed.notify()

    def _take(self) -> bool:
        """Run what waits at the head; False to end."""
        with self.changed:
            if not self.waiting:
                return not self.closed
            self.running = True  # before it ceases to wait
            step, work = self.waiting.popleft()
        error: BaseException | None = None
        try:
            with self.busy:
                step()
        except BaseException as problem:
            error = problem
        with self.changed:
            self.running = bool(self.waiting)
        work._finish(error)
        return True


def _serve(reference: weakref.ref[Lane], changed: threading.Condition) -> None:
    """Run the steps of a lane until it is closed, or nobody has it any more."""
    while True:
        with changed:
            lane = reference()
            if lane is None:
                return
            if not lane.waiting and not lane.closed:
                del lane
                changed.wait(1.0)
                continue
        if not lane._take():
            return
        del lane
