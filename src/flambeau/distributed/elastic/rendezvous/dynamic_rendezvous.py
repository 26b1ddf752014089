"""DynamicRendezvousHandler: agents come and go; those that are there when enough have come are numbered, and begin.

# Note [the state of a meeting]
One document, that all agents read and change in turn, is the whole truth about a run's meetings:

    round         the number of the meeting
    complete      whether it has taken place; agents that come later wait, and are counted
    closed        whether it was the last
    nodes         who is in it, in the order in which they came; when it is complete, in the order of their numbers
    waiting       who came later

An agent looks at it, decides what it would like to be different, and writes the new document unless somebody was quicker; then it looks again.
Durations are measured by each agent for itself, so clocks need not agree.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from flambeau.distributed.elastic.rendezvous.api import (
    RendezvousClosedError,
    RendezvousError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStateError,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
)
from flambeau.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint
from flambeau.distributed.errors import DistError
from flambeau.distributed.stores import PrefixStore

__all__ = ["DynamicRendezvousHandler", "RendezvousBackend", "RendezvousSettings", "RendezvousTimeout", "create_handler"]

PATIENCE = 0.05  # seconds between two looks, at first; they grow to ten times that


class RendezvousBackend(ABC):
    """Keeps the document for all agents. A token stands for what was read; the document changes only if it is still that."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name by which it is chosen."""

    @abstractmethod
    def get_state(self) -> tuple[bytes, Any] | None:
        """The document and its token; None before the first."""

    @abstractmethod
    def set_state(self, state: bytes, token: Any | None = None) -> tuple[bytes, Any, bool] | None:
        """The document afterwards, its token, and whether it is the one given here."""


class RendezvousTimeout:
    """How long to wait: `join` for enough agents, `last_call` for further ones then, `close` for the end, `heartbeat` for a sign of life."""

    def __init__(
        self,
        join: timedelta | None = None,
        last_call: timedelta | None = None,
        close: timedelta | None = None,
        heartbeat: timedelta | None = None,
    ) -> None:
        given = {"join": (join, 600), "last_call": (last_call, 30), "close": (close, 30), "heartbeat": (heartbeat, 5)}
        self._values = {name: timedelta(seconds=usual) if value is None else value for name, (value, usual) in given.items()}
        for name, value in self._values.items():
            if value <= timedelta(0):
                raise ValueError(f"The {name} timeout ({value}) must be positive.")

    join = property(lambda self: self._values["join"])
    last_call = property(lambda self: self._values["last_call"])
    close = property(lambda self: self._values["close"])
    heartbeat = property(lambda self: self._values["heartbeat"])


@dataclass(frozen=True)
class RendezvousSettings:
    """What an agent knows about a run before it meets the others."""

    run_id: str
    min_nodes: int
    max_nodes: int
    timeout: RendezvousTimeout
    keep_alive_interval: timedelta
    keep_alive_max_attempt: int


@dataclass
class State:
    """The document. See Note [the state of a meeting]."""

    round: int = 0
    complete: bool = False
    closed: bool = False
    nodes: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)


class DynamicRendezvousHandler(RendezvousHandler):
    """Between min_nodes and max_nodes agents; more than one meeting, if agents are lost or come later."""

    def __init__(
        self, node: str, settings: RendezvousSettings, backend: RendezvousBackend, store: Any, local_addr: str | None = None
    ) -> None:
        if not settings.run_id:
            raise ValueError("The run id must be a non-empty string.")
        if not 1 <= settings.min_nodes <= settings.max_nodes:
            raise ValueError(
                "The number of nodes must be at least 1, and the most that may come at least as many as must come: "
                f"found min_nodes={settings.min_nodes}, max_nodes={settings.max_nodes}"
            )
        self._node, self._settings, self._backend, self._store = node, settings, backend, store
        self._local_addr = local_addr
        self._round = -1  # the last meeting this agent was in
        self._endpoint_host: str | None = None
        self._workers_store: Any = None

    @classmethod
    def from_backend(
        cls,
        run_id: str,
        store: Any,
        backend: RendezvousBackend,
        min_nodes: int,
        max_nodes: int,
        local_addr: str | None = None,
        timeout: RendezvousTimeout | None = None,
        keep_alive_interval: int = 5,
        keep_alive_max_attempt: int = 3,
    ) -> DynamicRendezvousHandler:
        """A handler of this process. The agent that keeps the store comes first, and so gets number 0."""
        name = f"{local_addr or socket.getfqdn()}_{os.getpid()}_{uuid.uuid4().hex[:8]}"
        node = f"{0 if getattr(store, 'kept_here', False) else 1}:{name}"
        interval = timedelta(seconds=keep_alive_interval)
        settings = RendezvousSettings(run_id, min_nodes, max_nodes, timeout or RendezvousTimeout(), interval, keep_alive_max_attempt)
        return cls(node, settings, backend, store, local_addr)

    @property
    def settings(self) -> RendezvousSettings:
        """What was known beforehand."""
        return self._settings

    def get_backend(self) -> str:
        return self._backend.name

    @property
    def use_agent_store(self) -> bool:
        return True

    def get_run_id(self) -> str:
        return self._settings.run_id

    def next_rendezvous(self) -> RendezvousInfo:
        state = self._join()
        rank, size = state.nodes.index(self._node), len(state.nodes)
        room = PrefixStore(f"torch.rendezvous.{self._settings.run_id}.{state.round}", self._store)
        where = self._workers_store_of(rank, room)
        return RendezvousInfo(room, rank, size, where)

    def _workers_store_of(self, rank: int, room: Any) -> RendezvousStoreInfo:
        """The first agent's store. It is the one in which the agents meet, if that agent keeps it."""
        if rank != 0:
            return RendezvousStoreInfo.build(rank, room, None)
        if getattr(self._store, "kept_here", False):
            return RendezvousStoreInfo.build(0, room, self._local_addr or self._endpoint_host, self._store.port)
        if self._workers_store is None:
            from flambeau.distributed.stores import TCPStore

            address = self._local_addr or (socket.getfqdn() if self._settings.max_nodes > 1 else "localhost")
            self._workers_store = TCPStore(address, 0, is_master=True, wait_for_workers=False)
        return RendezvousStoreInfo.build(0, room, self._workers_store.host, self._workers_store.port)

    # -- the meeting ---------------------------------------------------------------------------------------------------------------------

    def _join(self) -> State:
        """Take part in the next meeting; its document."""
        settings, began, enough_since = self._settings, time.monotonic(), None
        pause, seen = PATIENCE, None
        while True:
            state, token = self._look()
            if state.closed:
                raise RendezvousClosedError(f"the run {settings.run_id!r} has ended")
            if state.complete and self._node in state.nodes and state.round > self._round:
                self._round = state.round
                return state
            now = time.monotonic()
            if not state.complete and len(state.nodes) >= settings.min_nodes:
                enough_since = enough_since if enough_since is not None else now
            else:
                enough_since = None
            wanted = self._wanted(state, enough_since is not None and now - enough_since >= settings.timeout.last_call.total_seconds())
            if wanted is not None:
                self._backend.set_state(_written(wanted), token)
                continue
            if now - began > settings.timeout.join.total_seconds() and len(state.nodes) < settings.min_nodes:
                raise RendezvousTimeoutError(
                    f"{len(state.nodes)} of at least {settings.min_nodes} nodes came to run {settings.run_id!r} within {settings.timeout.join}: "
                    f"{', '.join(node.partition(':')[2] for node in state.nodes)}. Have all been started, with the same --rdzv_endpoint and --rdzv_id?"
                )
            pause = PATIENCE if state != seen else min(pause * 1.3, 10 * PATIENCE)
            seen = state
            time.sleep(pause)

    def _wanted(self, state: State, last_call_is_over: bool) -> State | None:
        """How this agent would like the document to be; None if it is content for now."""
        here = self._node in state.nodes
        most = self._settings.max_nodes
        if state.complete:
            if here:  # it was in the last meeting, and calls the next
                return State(round=state.round + 1, nodes=[self._node])
            if self._node not in state.waiting:
                return State(state.round, True, False, state.nodes, [*state.waiting, self._node])
            return None
        if not here:
            return State(state.round, False, False, [*state.nodes, self._node], state.waiting) if len(state.nodes) < most else None
        if len(state.nodes) == most or (len(state.nodes) >= self._settings.min_nodes and last_call_is_over):
            return State(state.round, True, False, sorted(state.nodes, key=lambda node: node.partition(":")[0]), [])
        return None

    def _look(self) -> tuple[State, Any]:
        found = self._backend.get_state()
        if found is None:
            return State(), None
        try:
            return State(**json.loads(found[0])), found[1]
        except (TypeError, ValueError) as problem:
            raise RendezvousStateError(f"the state of run {self._settings.run_id!r} makes no sense: {found[0][:200]!r}") from problem

    def _change(self, how: Callable[[State], State | None]) -> None:
        """Change the document, however often others are quicker."""
        while True:
            state, token = self._look()
            wanted = how(state)
            if wanted is None:
                return
            result = self._backend.set_state(_written(wanted), token)
            if result is not None and result[2]:
                return

    def is_closed(self) -> bool:
        return self._look()[0].closed

    def set_closed(self) -> None:
        self._change(lambda state: None if state.closed else State(state.round, state.complete, True, state.nodes, state.waiting))

    def num_nodes_waiting(self) -> int:
        """How many would like to join and may: a full meeting goes on."""
        state = self._look()[0]
        if state.round > self._round:  # somebody has called the next meeting
            return max(len(state.nodes), 1)
        return len(state.waiting) if len(state.nodes) < self._settings.max_nodes else 0

    def shutdown(self) -> bool:
        """Leave for good; nobody meets in this run again."""
        if self._store is None:
            return True
        well = True
        try:
            self.set_closed()
        except (RendezvousError, DistError, OSError):
            well = False  # the agent that kept the store has gone before
        for store in (self._workers_store, self._store):
            if store is not None:
                store.goodbye()
        self._store = self._workers_store = None
        return well


def _written(state: State) -> bytes:
    return json.dumps(vars(state)).encode()


def create_handler(store: Any, backend: RendezvousBackend, params: RendezvousParameters) -> DynamicRendezvousHandler:
    """The handler for options join_timeout, last_call_timeout, close_timeout, keep_alive_interval, keep_alive_max_attempt."""
    durations = {
        name: None if (given := params.get_as_int(key)) is None else timedelta(seconds=given)
        for name, key in (
            ("join", "join_timeout"),
            ("last_call", "last_call_timeout"),
            ("close", "close_timeout"),
            ("heartbeat", "heartbeat_timeout"),
        )
    }
    if durations["join"] is None and (timeout := params.get_as_int("timeout")) is not None:
        durations["join"] = timedelta(seconds=timeout)
    handler = DynamicRendezvousHandler.from_backend(
        params.run_id,
        store,
        backend,
        params.min_nodes,
        params.max_nodes,
        params.local_addr,
        RendezvousTimeout(**durations),
        params.get_as_int("keep_alive_interval", 5) or 5,
        params.get_as_int("keep_alive_max_attempt", 3) or 3,
    )
    if str(params.get("store_type", "tcp")) == "tcp":
        handler._endpoint_host = parse_rendezvous_endpoint(params.endpoint, 0)[0]
    return handler
