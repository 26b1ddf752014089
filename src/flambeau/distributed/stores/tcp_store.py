"""TCPStore: one process keeps the keys, the others reach them through TCP."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from flambeau.distributed.errors import DistNetworkError, DistStoreError
from flambeau.distributed.stores import addresses, steps
from flambeau.distributed.stores.connection import Connection
from flambeau.distributed.stores.frames import DONE, GOODBYE, LATE, WILL
from flambeau.distributed.stores.secret import secret
from flambeau.distributed.stores.server import Server
from flambeau.distributed.stores.stepped_store import SteppedStore
from flambeau.distributed.stores.steps import HIDDEN, PROBLEMS, Step
from flambeau.distributed.stores.store import Text, as_bytes
from flambeau.distributed.stores.timeouts import DEFAULT, nobody_set, seconds

ARRIVED = HIDDEN + b"arrived"
GRACE = 30.0  # seconds that the host may be busy with something else before we think that it hangs


class TCPStore(SteppedStore):
    """Keys and values in the process that was made with `is_master=True`; port 0 is one that is free (`store.port`).

    host    one process            TCPStore("localhost", 29500, world_size, is_master=True)
    others  all but that one       TCPStore("localhost", 29500, world_size)

    Any number of threads may use one store: each that has to wait gets a connection of its own. Only processes with the same secret get in.
    """

    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: timedelta = DEFAULT,
        wait_for_workers: bool = True,
        multi_tenant: bool = False,
        master_listen_fd: int | None = None,
        use_libuv: bool = True,
    ):
        if not isinstance(host_name, str) or isinstance(port, (str, float)) or not 0 <= port < 65536:
            raise TypeError(f"TCPStore: a host name and a port from 0 to 65535 are expected, not {host_name!r} and {port!r}")
        if world_size == 0:
            raise ValueError("TCPStore world size cannot be 0: give the number of processes, or None where it is not known")
        limit = seconds(timeout, "TCPStore")
        self._host, self._port = host_name, int(port)
        self._timeout = timeout
        self._secret = secret()
        self._free: list[Connection] = []
        self._open: set[Connection] = set()
        self._will: Connection | None = None
        self._will_lock = threading.Lock()
        self._server: Server | None = None
        self._said_goodbye = False
        self._was_there = is_master
        self._libuv = bool(use_libuv)
        if is_master:
            self._server = _hosting(host_name, self._port, self._secret, multi_tenant, master_listen_fd)
            self._port = self._server.port
        else:
            self._free.append(self._connect(limit))
        self._end = weakref.finalize(self, _end, self._open, self._server)
        _stores.add(self)
        if wait_for_workers and world_size is not None:
            self._arrive(world_size, limit)

    @property
    def host(self) -> str:
        """The name under which the store is reached."""
        return self._host

    @property
    def port(self) -> int:
        """The port at which it listens."""
        return self._port

    @property
    def hosts(self) -> bool:
        """Whether the server is in this process."""
        return self._server is not None

    @property
    def libuvBackend(self) -> bool:
        """What was asked for with `use_libuv`. There is one kind of server here, whatever it says."""
        return self._libuv

    def clone(self) -> TCPStore:
        return TCPStore(self._host, self._port, None, False, self._timeout, False)

    def will(self, key: str, value: Text, /) -> bool:
        """Have the server set `key` when this process is lost without `goodbye()`. False in the process that hosts the server."""
        if self._server is not None:
            return False
        with self._will_lock:
            if self._will is None:  # kept apart from those that are given up when Ctrl-C comes in between
                self._will = self._connect(self._timeout.total_seconds())
            self._will.ask(WILL, [as_bytes(key), as_bytes(value)], 0.0, GRACE)
        return True

    def goodbye(self) -> None:
        """This process is done with the store. In the process that hosts it: the server ends, unless another store here shares it."""
        if self._said_goodbye:
            return
        self._said_goodbye = True
        with suppress(DistNetworkError), self._will_lock:  # the host may have gone before us
            if self._will is not None:
                self._will.ask(GOODBYE, [], 0.0, GRACE)
        self._end()

    def _run(self, step: Step, fields: Sequence[bytes], timeout: float) -> list[bytes]:
        if self._said_goodbye:
            raise DistNetworkError(
                f"{step.name}: this store at {self._host}:{self._port} has been left with goodbye(). Make a new TCPStore"
            )
        if self._server is not None:
            return self._server.table.ask(step, fields, timeout)
        try:
            connection = self._free.pop()
        except IndexError:  # all are with threads that wait
            connection = self._connect(self._timeout.total_seconds())
        try:
            code, _, answer = connection.ask(step.number, fields, timeout, timeout + GRACE if step.waits else GRACE * 10)  # type: ignore[arg-type]
        except BaseException:  # an answer may still come, which the next question must not take for its own
            self._open.discard(connection)
            connection.close()
            raise
        self._free.append(connection)
        if code == DONE:
            return answer
        if code == LATE:
            raise nobody_set(step.name, answer, fields, timeout)
        raise PROBLEMS[answer[0]](answer[1].decode())

    def _connect(self, timeout: float) -> Connection:
        connection = Connection(self._host, self._port, self._secret, timeout, was_there=self._was_there)
        self._was_there = True
        self._open.add(connection)
        return connection

    def _arrive(self, world_size: int, timeout: float) -> None:
        """Count in; the host waits until everybody has."""
        arrived = int(self._ask(steps.add, ARRIVED, b"1")[0])
        if self._server is None or arrived >= world_size:
            return
        try:
            self._run(steps.reach, (ARRIVED, b"%d" % world_size), timeout)
        except DistStoreError:
            arrived = int(self._ask(steps.add, ARRIVED, b"0")[0])
            self.goodbye()
            raise DistStoreError(
                f"TCPStore: timed out after {timeout:g} seconds waiting for clients: {arrived}/{world_size} joined at {self._host}:{self._port}\n"
                f"    try  see whether the others were started, with the same MASTER_ADDR and MASTER_PORT, and what they printed;\n"
                f"         a longer timeout, or wait_for_workers=False where they may come later"
            ) from None

    def _forked(self) -> None:
        """In a fork: leave the parent its connections, and make new ones when they are needed."""
        for connection in self._open:
            connection.wire.close()
        self._open.clear()
        self._free.clear()
        self._will, self._will_lock = None, threading.Lock()
        self._end.detach()
        if self._server is not None:
            self._server = None
        self._end = weakref.finalize(self, _end, self._open, None)

    def __repr__(self) -> str:
        return f"TCPStore({self._host!r}, {self._port}, is_master={self._server is not None})"


_stores: weakref.WeakSet[TCPStore] = weakref.WeakSet()
_hosted: dict[int, _Hosted] = {}  # by port
_hosts_lock = threading.RLock()  # a store that the garbage collector finds may end on a thread that is just making one


class _Hosted:
    """A server of this process, and how many of its stores use it."""

    def __init__(self, server: Server, shared: bool):
        self.server, self.shared, self.users = server, shared, 1


def _hosting(host: str, port: int, key: bytes, multi_tenant: bool, descriptor: int | None) -> Server:
    """A server at this port: a new one, or the one of this process that is open to further tenants."""
    with _hosts_lock:
        there = _hosted.get(port)
        if multi_tenant and there is not None and there.shared:
            there.users += 1
            if not there.server.closing:
                return there.server
        listeners = addresses.listen(host, port) if descriptor is None else [addresses.adopt(descriptor, port)]
        server = Server(listeners, key)
        _hosted[server.port] = _Hosted(server, multi_tenant)
        return server


def _end(connections: set[Connection], server: Server | None) -> None:
    """Close what a store had open. The server ends with the last store that uses it."""
    for connection in list(connections):
        connection.close()
    connections.clear()
    if server is None:
        return
    with _hosts_lock:
        there = _hosted[server.port]
        there.users -= 1
        if there.users:
            return
        del _hosted[server.port]
    server.close()


def _after_fork() -> None:
    global _hosts_lock
    _hosts_lock = threading.RLock()
    for hosted in _hosted.values():
        hosted.server.forsake()
    _hosted.clear()
    for store in list(_stores):
        store._forked()


os.register_at_fork(after_in_child=_after_fork)
