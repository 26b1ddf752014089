"""Watcher: a thread that tells the other ranks what this one does, learns what became of them, and ends waits that are in vain.

    process/<rank>  its pid, and on which machine
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
from contextlib import suppress
from typing import Any

from flambeau.distributed.errors import DistBackendError, DistError
from flambeau.distributed.mpi.machine import machine
from flambeau.distributed.stores import PrefixStore
from flambeau.distributed.watch.board import Board, Entry
from flambeau.distributed.watch.deadlock import absent, stuck
from flambeau.distributed.watch.fate import Fate

TICK = 0.4  # seconds between two looks
SUSPICIOUS = 1.0  # a call that has been open for so long may be a deadlock
NOTICEABLE = 3.0  # ... and people want to know for whom it waits
GRACE = 1.0  # what a rank has sent before it left still arrives
LINGER = 2 * TICK + 0.2
STATUS = 1.5  # so long it may take until somebody says how a process ended


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
        self.fates: dict[int, Fate | None] = {}  # of the others, None for those on other machines
        self.gone: dict[int, dict[str, Any]] = {}  # what is known about ranks that left or died
        self.failure: str | None = None
        self.trouble = False  # whether one of these two is set
        self.host: int | None = None  # the rank whose process has the store, if it is one
        self.lost = False  # whether the store has ended
        self._published: tuple = ()
        self._heard: dict[int, dict[str, Any]] = {}  # boards, when last read
        self._warned: set[str] = set()
        self._beat = 0  # how many looks there have been
        self._same_since = time.time()  # when the board changed last, as far as looks have seen
        self._before: dict[int, tuple[int, int]] = {}  # changes and beat of the boards when a deadlock was first suspected
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        if self.size == 1:
            return
        if self.hosts:
            self.store.set("host", str(self.rank))
        self.store.set(f"process/{self.rank}", json.dumps({"pid": os.getpid(), "machine": machine()}))
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
        for fate in self.fates.values():
            if fate is not None:
                fate.close()
        if self.lost:
            return
        problem = sys.exc_info()[1] or getattr(sys, "last_value", None)
        said = (
            " ".join(f"{type(problem).__name__}: {problem}".split())[:500]
            if problem is not None and not isinstance(problem, SystemExit)
            else None
        )
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
        where = self._whereabouts(entry, self._states())
        return DistBackendError(
            f"{entry.said} at {entry.line} did not end within its timeout of {seconds:g} s:\n{where}\n"
            "    try      give init_process_group or new_group a longer timeout= if the others are only slow"
        )

    def fail(self, what: str) -> None:
        """Tell all ranks that the program is hopeless."""
        self._set_failure(what)
        with suppress(DistError):  # the store has ended: nobody can be told
            self.store.set("failure", what)

    def states(self) -> dict[int, dict[str, Any]]:
        """What every rank does, as far as known; those that are gone have a "gone" that says how."""
        states = self._states() if self.size > 1 else {0: self._state()}
        return {rank: states.get(rank, {}) | ({"gone": self._became(rank)} if rank in self.gone else {}) for rank in range(self.size)}

    # ---- the thread ----

    def _watch(self) -> None:
        while not self._end.wait(TICK if len(self.fates) == self.size - 1 else TICK / 10):  # soon: who dies before we meet has no name
            try:
                if self.lost:
                    self._look_alone()
                else:
                    self._look()
            except DistError as problem:
                if self._end.is_set():
                    return
                self._lost_the_store(problem)

    def _look(self) -> None:
        state = self._state()
        seen = (state["changes"], state["waits"], state["at"])
        if seen != self._published:
            state["since"] = self._same_since = time.time()
        if seen != self._published or state["waits"] is not None:
            self._beat = state["beat"] = self._beat + 1
            self.store.set(f"board/{self.rank}", json.dumps(state))
            self._published = seen
        self._meet()
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

    def _meet(self) -> None:
        """Have a hand on the processes of this machine while they live."""
        new = [rank for rank in range(self.size) if rank != self.rank and rank not in self.fates]
        for rank, said in zip(new, self.store.multi_get_if_there([f"process/{rank}" for rank in new]) if new else [], strict=True):
            if said is not None:
                process = json.loads(said)
                self.fates[rank] = Fate(process["pid"]) if process["machine"] == machine() else None

    def _look_alone(self) -> None:
        """Without a store: at the processes of this machine."""
        for rank, fate in self.fates.items():
            if rank not in self.gone and fate is not None and fate.has_come():
                self._set_gone(rank, {"how": "died", "status": self._status(rank)})

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
        waiting = stuck(here, self.gone) if len(here) + len(self.gone) == self.size else []
        if self.rank not in waiting:
            self._before = {}
            return
        now_seen = {rank: (here[rank]["changes"], here[rank]["beat"]) for rank in waiting}
        if not self._unchanged(now_seen):
            return
        table = "\n".join(f"    rank {rank}   {doing(here[rank])}" for rank in waiting)
        self.fail(
            f"ranks {waiting} wait for each other, and none of them can go on:\n{table}\n"
            "    try      every rank makes the same calls in the same order; of two ranks that exchange messages, one sends first and one receives first, "
            "or both use isend and irecv"
        )

    def _unchanged(self, seen: dict[int, tuple[int, int]]) -> bool:
        """Whether all these ranks have looked again since this was first seen, and do the same: so they did it at one moment, and what travelled has arrived."""
        before = self._before
        if seen.keys() == before.keys() and all(seen[rank][0] == before[rank][0] for rank in seen):
            return all(seen[rank][1] > before[rank][1] for rank in seen)
        self._before = seen
        return False

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
        """What every rank does, by what was last heard of it."""
        with suppress(DistError):  # the store has ended: nothing new will be heard
            boards = self.store.multi_get_if_there([f"board/{rank}" for rank in range(self.size)])
            self._heard = {rank: json.loads(board) for rank, board in enumerate(boards) if board is not None}
        return self._heard | {self.rank: self._state()}

    def _state(self) -> dict[str, Any]:
        """The board, and since when it shows the same."""
        return self.board.state() | {"since": self._same_since, "beat": self._beat}

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
            self._set_gone(self.host, {"how": "died", "status": f"{self._status(self.host)}, and the store that it hosted with it"})

    def _status(self, rank: int) -> str:
        """How a process ended, if a launcher or the kernel says it in time."""
        key = f"launcher/ended/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{rank}"
        launched, fate = "TORCHELASTIC_RUN_ID" in os.environ and not self.lost, self.fates.get(rank)
        deadline = time.monotonic() + STATUS
        while (launched or fate is not None) and time.monotonic() < deadline:
            status = fate.status() if fate is not None else None
            if fate is not None and status is not None:
                return f"{describe_status(status)} (pid {fate.pid})"
            if launched and (said := self.connection.multi_get_if_there([key])[0]) is not None:
                ended = json.loads(said)
                return f"{describe_status(ended['status'])} (pid {ended['pid']})"
            time.sleep(0.05)
        return "has died (its connection broke; whoever started it knows its exit status)"

    def _never_comes(self, rank: int, entry: Entry) -> bool:
        gone = self.gone.get(rank)
        if gone is None or (entry.number and gone.get("begun", {}).get(entry.group, 0) >= entry.number):
            return False
        return gone["how"] == "died" or time.monotonic() - max(gone["since"], entry.since) > GRACE

    def _became(self, rank: int) -> str:
        gone = self.gone[rank]
        if gone["how"] == "died":
            return gone["status"]
        if gone["error"]:
            return f"has ended with {gone['error']}"
        fate = self.fates.get(rank)
        status = fate.status() if fate is not None else None
        return "has left the group" if status is None else f"{describe_status(status)} (pid {fate.pid})"


def describe_status(status: int) -> str:
    """
    >>> describe_status(-9), describe_status(3)
    ('was killed by SIGKILL', 'ended with exit status 3')
    """
    return f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with exit status {status}"


def waited_for(state: dict[str, Any]) -> dict[str, Any] | None:
    """The call that a rank is in: the one that its main thread waits for, or else the oldest."""
    calls = [entry for entry in state["open"] if entry["label"] == state["waits"]] or state["open"]
    return calls[0] if calls else None


def doing(state: dict[str, Any] | None, for_long: str = "") -> str:
    """What a rank does, for people."""
    if state is None:
        return "has not been heard of"
    call = waited_for(state)
    if call is not None:
        return f"is in {call['said']}{call['among']} at {call['line']}{for_long}"
    return f"is at {state['at']}{for_long}" + (f", after {state['last']}" if state["last"] else ", and has made no call yet")
