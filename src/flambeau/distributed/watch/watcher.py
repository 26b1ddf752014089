"""Watcher: a thread that tells the other ranks what this one does, learns what became of them, and ends waits that are in vain.

    gone/<rank>     set when a rank leaves, or by the store when its connection breaks without that
    board/<rank>    what it does, a few times per second while that changes
    waited/<rank>   somebody has waited for it for a while
    failure         what makes the whole program hopeless: ranks that wait for each other

Nothing here is on the way of a collective: calls write to a Board in memory, and look at one flag.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from flambeau.distributed.errors import DistBackendError, DistError
from flambeau.distributed.stores import PrefixStore
from flambeau.distributed.watch.board import Board, Entry
from flambeau.distributed.watch.deadlock import absent, stuck

TICK = 0.4  # seconds between two looks
SUSPICIOUS = 1.0  # a call that has been open for so long may be a deadlock
NOTICEABLE = 3.0  # ... and people want to know for whom it waits
GRACE = 1.0  # what a rank has sent before it left still arrives
LINGER = 2 * TICK + 0.2
STATUS = 1.5  # so long a launcher may take to say how a process ended


class Watcher:
    """Watches the ranks of a program, through a connection to its store that nobody else uses.

    prefix  of its keys in that store
    alarm   called, from the watcher's thread, when waits should look around
    hosts   whether the store is in this process, and ends with it
    """

    def __init__(self, connection: Any, prefix: str, rank: int, size: int, alarm: Callable[[], None], hosts: bool = False):
        self.connection: Any = connection  # None for a rank that is alone
        self.store: Any = None if connection is None else PrefixStore(prefix, connection)
        self.rank, self.size, self.alarm, self.hosts = rank, size, alarm, hosts
        self.board = Board()
        self.gone: dict[int, dict[str, Any]] = {}  # what is known about ranks that left or died
        self.failure: str | None = None
        self.trouble = False  # whether one of these two is set
        self.host: int | None = None  # the rank whose process has the store, if it is one
        self.lost = False  # whether the store has ended
        self._published: tuple = ()
        self._warned: set[str] = set()
        self._before: dict[int, int] = {}  # the boards' numbers of changes when a deadlock was first suspected
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        if self.size == 1:
            return
        if self.hosts:
            self.store.set("host", str(self.rank))
        self.store.will(f"gone/{self.rank}", json.dumps({"how": "died"}))
        self._thread = threading.Thread(target=self._watch, name="flambeau-watch", daemon=True)
        self._thread.start()
        atexit.register(self.leave)

    def leave(self) -> None:
        """Tell the others that this rank goes, and how far it has come."""
        atexit.unregister(self.leave)
        if self._thread is None:
            return
        self._end.set()
        self._thread.join(2.0)
        self._thread = None
        if self.lost:
            return
        problem = sys.exc_info()[1] or getattr(sys, "last_value", None)
        said = f"{type(problem).__name__}: {problem}"[:500] if problem is not None and not isinstance(problem, SystemExit) else None
        try:
            self.store.set(f"gone/{self.rank}", json.dumps({"how": "left", "begun": self.board.begun, "error": said}))
            if self.hosts:
                self._linger()
            self.store.goodbye()
        except DistError:
            return  # the store has ended before: nobody is left to be told

    def _linger(self) -> None:
        """Keep the store a little longer, until the others have left or had the time to read what became of us."""
        everyone = [f"gone/{rank}" for rank in range(self.size)]
        deadline = time.monotonic() + LINGER
        while None in self.store.multi_get_if_there(everyone) and time.monotonic() < deadline:
            time.sleep(0.01)

    # ---- asked by calls ----

    def check(self, entry: Entry) -> None:
        """Raise if this call can never end."""
        if not self.trouble:
            return
        if self.failure is not None:
            raise DistBackendError(self.failure)
        hopeless = [rank for rank in entry.peers if self._never_comes(rank, entry)]
        if hopeless if not entry.any else len(hopeless) == len(entry.peers):
            why = "\n".join(f"    rank {rank}   {self._became(rank)}" for rank in hopeless)
            raise DistBackendError(f"{entry.said} at {entry.line} waits for ranks that are gone:\n{why}")

    def explain(self, entry: Entry, problem: Exception) -> DistBackendError:
        """The error of a call in which MPI failed: what became of the other side, if that is learned soon."""
        deadline = time.monotonic() + NOTICEABLE
        try:
            while time.monotonic() < deadline:
                self.check(entry)
                time.sleep(0.05)
        except DistBackendError as known:
            return known
        return DistBackendError(f"{entry.said} at {entry.line}: {problem}, and no rank is known to have ended")

    def missing(self, entry: Entry, seconds: float) -> DistBackendError:
        """The error of a call that took too long: who did not come, and where they are instead."""
        try:
            states = self._states()
        except DistError:
            states = {}
        return DistBackendError(
            f"{entry.said} at {entry.line} did not end within its timeout of {seconds:g} s:\n{self._whereabouts(entry, states)}\n"
            "    try      give init_process_group or new_group a longer timeout= if the others are only slow"
        )

    def fail(self, what: str) -> None:
        """Tell all ranks that the program is hopeless."""
        self._set_failure(what)
        self.store.set("failure", what)

    def states(self) -> dict[int, dict[str, Any]]:
        """What every rank does, as far as known; those that are gone have a "gone" that says how."""
        states = self._states() if self.size > 1 else {0: self.board.state()}
        return {rank: states.get(rank, {}) | ({"gone": self._became(rank)} if rank in self.gone else {}) for rank in range(self.size)}

    # ---- the thread ----

    def _watch(self) -> None:
        while not self._end.wait(TICK):
            try:
                self._look()
            except DistError as problem:
                if not self._end.is_set():
                    self._lost_the_store(problem)
                return

    def _look(self) -> None:
        state = self.board.state()
        seen = (state["changes"], state["waits"], state["at"])
        if seen != self._published:
            self.store.set(f"board/{self.rank}", json.dumps(state))
            self._published = seen
        others = [rank for rank in range(self.size) if rank != self.rank and rank not in self.gone]
        asked = ["host", "failure", f"waited/{self.rank}", *(f"gone/{rank}" for rank in others)]
        host, failure, waited, *gone = self.store.multi_get_if_there(asked)
        if host is not None:
            self.host = int(host)
        if failure is not None and self.failure is None:
            self._set_failure(failure.decode())
        for rank, said in zip(others, gone, strict=True):
            if said is not None:
                self._set_gone(rank, json.loads(said))
        if waited is not None:
            self._say(waited.decode() + f"; this process is at {state['at']}")
        self._look_at_waits(state)

    def _look_at_waits(self, state: dict[str, Any]) -> None:
        now = time.monotonic()
        slow = [entry for entry in list(self.board.open.values()) if now - entry.since > SUSPICIOUS]
        if not slow:
            self._before = {}
            return
        states = self._states()
        for entry in slow:
            if now - entry.since > NOTICEABLE and f"{entry.said}{entry.line}" not in self._warned:
                self._warned.add(f"{entry.said}{entry.line}")
                self._notice(entry, states)
        here = {rank: state for rank, state in states.items() if rank not in self.gone}
        waiting = stuck(here) if len(here) + len(self.gone) == self.size else []
        if self.rank not in waiting or self.gone:
            self._before = {}
            return
        changes = {rank: here[rank]["changes"] for rank in waiting}
        if changes != self._before:  # what travels arrives until the next look
            self._before = changes
            return
        table = "\n".join(f"    rank {rank}   {doing(here[rank])}" for rank in waiting)
        self.fail(
            f"ranks {waiting} wait for each other, and none of them can go on:\n{table}\n"
            "    try      every rank makes the same calls in the same order; of two ranks that exchange messages, one sends first and one receives first, "
            "or both use isend and irecv"
        )

    def _notice(self, entry: Entry, states: dict[int, dict[str, Any]]) -> None:
        self._say(f"rank {self.rank} has waited {NOTICEABLE:g} s in {entry.said} at {entry.line}:\n{self._whereabouts(entry, states)}")
        for rank in absent(entry.told(), states):
            if rank not in self.gone:
                self.store.set(f"waited/{rank}", f"rank {self.rank} waits for rank {rank} in {entry.said} at {entry.line}")

    def _say(self, what: str) -> None:
        if what.partition(";")[0] not in self._warned:
            self._warned.add(what.partition(";")[0])
            print(f"[flambeau] {what}", file=sys.stderr, flush=True)

    def _whereabouts(self, entry: Entry, states: dict[int, dict[str, Any]]) -> str:
        """A line for each rank that a call waits for."""
        missing = absent(entry.told(), states) or list(entry.peers)
        lines = [f"    rank {rank}   {self._became(rank) if rank in self.gone else doing(states.get(rank))}" for rank in missing]
        return "\n".join(lines)

    def _states(self) -> dict[int, dict[str, Any]]:
        boards = self.store.multi_get_if_there([f"board/{rank}" for rank in range(self.size)])
        states = {rank: json.loads(board) for rank, board in enumerate(boards) if board is not None}
        states[self.rank] = self.board.state()
        return states

    # ---- what became of ranks ----

    def _set_failure(self, what: str) -> None:
        self.failure = what
        self.trouble = True
        self.alarm()

    def _set_gone(self, rank: int, said: dict[str, Any]) -> None:
        if said["how"] == "died" and "status" not in said:
            said["status"] = self._status(rank)
        said["since"] = time.monotonic()
        self.gone[rank] = said
        self.trouble = True
        self.alarm()

    def _lost_the_store(self, problem: DistError) -> None:
        self.lost = True
        if self.host is None:
            self._set_failure(f"the launcher, which holds the ranks together, has ended: {problem}")
        elif self.host not in self.gone:
            self._set_gone(self.host, {"how": "died", "status": f"has died, and the store that it hosted with it: {problem}"})

    def _status(self, rank: int) -> str:
        """How a process ended, if a launcher says it in time."""
        if "TORCHELASTIC_RUN_ID" not in os.environ:
            return "has died (its connection broke; whoever started it knows its exit status)"
        key = f"launcher/ended/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{rank}"
        deadline = time.monotonic() + STATUS
        while time.monotonic() < deadline:
            (said,) = self.connection.multi_get_if_there([key])
            if said is not None:
                ended = json.loads(said)
                return f"{describe_status(ended['status'])} (pid {ended['pid']})"
            time.sleep(0.05)
        return "has died (its connection broke)"

    def _never_comes(self, rank: int, entry: Entry) -> bool:
        gone = self.gone.get(rank)
        if gone is None or (entry.number and gone.get("begun", {}).get(entry.group, 0) >= entry.number):
            return False
        return gone["how"] == "died" or time.monotonic() - max(gone["since"], entry.since) > GRACE

    def _became(self, rank: int) -> str:
        gone = self.gone[rank]
        if gone["how"] == "died":
            return gone["status"]
        return f"has ended with {gone['error']}" if gone["error"] else "has left the group, or come to its end"


def describe_status(status: int) -> str:
    """
    >>> describe_status(-9), describe_status(3)
    ('was killed by SIGKILL', 'ended with exit status 3')
    """
    return f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with exit status {status}"


def doing(state: dict[str, Any] | None) -> str:
    """What a rank does, for people."""
    if state is None:
        return "has not been heard of"
    waits = [entry for entry in state["open"] if entry["label"] == state["waits"]] or state["open"]
    if waits:
        return f"is in {waits[0]['said']} at {waits[0]['line']}"
    return f"is at {state['at']}" + (f", after {state['last']}" if state["last"] else ", and has made no call yet")
