"""The table of one store: its contents, and those who wait for keys in them.

Threads of this process `ask` and block; a server `begin`s for its clients, who are not to hold it up. Whoever writes a key answers those who
waited for it, on the spot: no thread sits between a `set` and the `get` that waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from flambeau.distributed.stores.steps import Contents, GoesOn, Missing, Step
from flambeau.distributed.stores.timeouts import nobody_set

Answer = list[bytes]


class Waiting:
    """A step that could not be answered yet. `answered` is called once, by the thread that wrote the key, while it holds the table's lock."""

    __slots__ = ("answered", "fields", "missing", "step")

    def __init__(self, step: Step, fields: Sequence[bytes], answered: Callable[[Answer], None], missing: list[bytes]):
        self.step, self.fields, self.answered, self.missing = step, fields, answered, missing


class Table:
    """Contents that threads and connections share."""

    def __init__(self) -> None:
        self.contents = Contents()
        self.lock = threading.RLock()
        self.waiting: dict[bytes, dict[Waiting, None]] = {}  # in the order in which they came, for queues are fair

    def ask(self, step: Step, fields: Sequence[bytes], timeout: float) -> Answer:
        """The answer to a step; this thread blocks until there is one. DistStoreError after `timeout` seconds."""
        found: list[Answer] = []
        ready = threading.Event()

        def answered(answer: Answer) -> None:
            found.append(answer)
            ready.set()

        begun = self.begin(step, fields, answered)
        if not isinstance(begun, Waiting):
            return begun
        try:
            ready.wait(min(timeout, threading.TIMEOUT_MAX))
        finally:  # Ctrl-C comes through here, too
            with self.lock:
                self.withdraw(begun)
        if not found:
            raise nobody_set(step.name, begun.missing, fields, timeout)
        return found[0]

    def begin(self, step: Step, fields: Sequence[bytes], answered: Callable[[Answer], None]) -> Answer | Waiting:
        """The answer if there is one; otherwise what waits for it, of which `answered` will hear."""
        with self.lock:
            try:
                try:
                    answer = step.run(self.contents, *fields)
                except GoesOn as rest:
                    step, fields = rest.step, rest.fields
                    answer = step.run(self.contents, *fields)
            except Missing as missing:
                waiting = Waiting(step, fields, answered, missing.keys)
                for key in missing.keys:
                    self.waiting.setdefault(key, {})[waiting] = None
                return waiting
            finally:
                if self.contents.changed:
                    self._wake()
            return answer

    def withdraw(self, waiting: Waiting) -> None:
        """It waits no more."""
        for key in waiting.missing:
            if group := self.waiting.get(key):
                group.pop(waiting, None)
                if not group:
                    del self.waiting[key]

    def _wake(self) -> None:
        """Try again what waits for a key that has been written."""
        while self.contents.changed:
            changed, self.contents.changed = self.contents.changed, []
            if not self.waiting:
                return
            for key in changed:
                for waiting in list(self.waiting.get(key, ())):
                    self._try_again(waiting)

    def _try_again(self, waiting: Waiting) -> None:
        self.withdraw(waiting)
        try:
            answer = waiting.step.run(self.contents, *waiting.fields)
        except Missing as missing:
            waiting.missing = missing.keys
            for key in missing.keys:
                self.waiting.setdefault(key, {})[waiting] = None
        else:
            waiting.answered(answer)
