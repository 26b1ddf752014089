"""Board: what this process is doing in its groups, for those who ask: the watcher that tells the other ranks, errors, report()."""

from __future__ import annotations

import itertools
import os
import socket
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from flambeau.distributed.watch.place import place

HOST = socket.gethostname()


class Entry:
    """One call that has begun and not ended.

    label   whom the main thread waits for if it waits for this: the group, or for a message, the message
    among   which group that is, for people
    group   the name of its group
    number  which collective of the group it is; 0 for messages
    said    what it does, and `line`, in which line of the program
    peers   the ranks of the program that it cannot end without; `any`, one of them is enough
    match   of a message: what it is, which is among what the peer's entry `wants`
    """

    __slots__ = ("among", "any", "began", "group", "label", "line", "match", "number", "peers", "said", "since", "wants")

    def __init__(
        self,
        group: str,
        number: int,
        said: str,
        line: str,
        peers: Sequence[int],
        label: str = "",
        match: str = "",
        wants: Sequence[str] = (),
        among: str = "",
    ):
        self.group, self.number, self.said, self.line, self.peers = group, number, said, line, peers
        self.label, self.match, self.wants, self.among, self.any = label or group, match, wants, among, False
        self.since, self.began = time.monotonic(), time.time()  # what other machines may subtract from their own time

    def told(self) -> dict[str, Any]:
        """The entry as the other ranks see it."""
        record = {name: getattr(self, name) for name in self.__slots__ if name != "since"}
        return record | {"peers": list(self.peers), "wants": list(self.wants)}


class Board:
    """The calls of this process that are under way, the number of calls begun in each group, and what the main thread waits for."""

    def __init__(self) -> None:
        self.open: dict[int, Entry] = {}
        self.begun: dict[str, int] = {}
        self.last: Entry | None = None  # the newest that has ended
        self.changes = 0
        self.waits: str | None = None
        self.callers: weakref.WeakSet[threading.Thread] = (
            weakref.WeakSet()
        )  # threads of the program beside the main one that have made calls
        self._key = itertools.count(1).__next__

    def enter(self, entry: Entry) -> int:
        """A call begins; the key under which it ends."""
        key = self._key()
        self.open[key] = entry
        if entry.number:
            self.begun[entry.group] = entry.number
        self.changes += 1
        return key

    def leave(self, key: int) -> None:
        """A call has ended."""
        self.last = self.open.pop(key)
        self.changes += 1

    def called(self) -> None:
        """The program makes a call, on the thread that asks."""
        thread = threading.current_thread()
        if thread is not threading.main_thread() and not thread.name.startswith("flambeau"):
            self.callers.add(thread)

    @contextmanager
    def waiting(self, label: str) -> Iterator[None]:
        """The thread waits for the call with this label inside the block."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before, self.waits = self.waits, label
        try:
            yield
        finally:
            self.waits = before

    def state(self) -> dict[str, Any]:
        """What the others are told."""
        last = self.last
        return {
            "host": HOST,
            "pid": os.getpid(),
            "open": [entry.told() for entry in list(self.open.values())],
            "begun": dict(self.begun),
            "last": f"{last.said} at {last.line}" if last else "",
            "changes": self.changes,
            "waits": self.waits if self._main_is_alone() else None,
            "at": where_main_is(),
        }

    def _main_is_alone(self) -> bool:
        """Whether nobody but the main thread could still make a call of the program."""
        main = threading.main_thread()
        return all(thread is main or (thread.daemon and thread not in self.callers) for thread in threading.enumerate())


def where_main_is() -> str:
    """The line of the program in which the main thread is."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return place(frame) or "its end"
