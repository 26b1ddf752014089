"""Pump: moves messages on that nobody waits for."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from flambeau.distributed.mpi.waiting import Bell
from flambeau.distributed.mpi.wire import Wire

if TYPE_CHECKING:
    from flambeau.distributed.groups.messages import Message

EAGER = 5e-6  # seconds for which its thread, which others compute beside, keeps its core to itself
MOST = 1000  # requests looked at in one slice


class Pump:
    """Messages under way, and a thread that moves them on. It starts with the first of them."""

    def __init__(self, name: str, wire: Wire):
        self.name, self.wire = name, wire
        self.bell = Bell()
        self.messages: list[Message] = []
        self.changed = threading.Condition()  # held by the thread while it looks at requests, which must not be looked at by two
        self.wanted = 0  # how many others want in
        self.gate = threading.Lock()
        self.thread: threading.Thread | None = None
        self.closed = False

    def add(self, message: Message) -> None:
        """Move this message on from now on."""
        if message.is_completed():
            return
        with self._inside():
            self.messages.append(message)
            if self.thread is None:
                self.wire.library.waiter.bells.add(self.bell)
                self.thread = threading.Thread(target=self._serve, name=self.name, daemon=True)
                self.thread.start()

    def take(self, message: Message) -> bool:
        """Leave this message to the caller; False if it has ended."""
        with self._inside():
            if message in self.messages:
                self.messages.remove(message)
                return True
            return False

    def close(self) -> None:
        """Let the thread end; messages that are under way stay where they are."""
        with self._inside():
            self.closed = True

    def _inside(self) -> _Inside:
        return _Inside(self)

    def _serve(self) -> None:
        waiter = self.wire.library.waiter
        while True:
            with self.changed:
                while (self.wanted or not self.messages) and not self.closed:
                    self.changed.wait()
                if self.closed:
                    return
                self.bell.byte[0] = 0
                if self.wanted:  # after the bell was silenced: whoever wants in from now on rings it
                    continue
                requests = [request for message in self.messages for request in message.requests]
                rung = not waiter.poll(requests[:MOST], self.bell, EAGER, True)
                for message in list(self.messages):  # what follows one may wait for another, and take it from here
                    message.advance()
                    if rung and not message.is_completed():
                        message.look()
                self.messages = [message for message in self.messages if not message.is_completed()]


class _Inside:
    """A block that has the pump to itself."""

    def __init__(self, pump: Pump):
        self.pump = pump

    def __enter__(self) -> None:
        pump = self.pump
        with pump.gate:
            pump.wanted += 1
        pump.bell.ring()
        pump.changed.acquire()

    def __exit__(self, *problem: object) -> None:
        pump = self.pump
        with pump.gate:
            pump.wanted -= 1
        pump.changed.notify()
        pump.changed.release()
