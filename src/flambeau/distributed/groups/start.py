"""How groups come into being: the first one of a program, and parts of it.

# Note [what holds the ranks together]
The store that a program names (`env://`, `tcp://`, a file) is where its ranks find each other; it tells MPI's processes about each other,
too. A TCPStore then also serves as the place where ranks learn of each other's death, over connections of their own. With any other
store, rank 0 opens one for that, and says in the given store where.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from flambeau.devices import device
from flambeau.distributed.groups.on_mpi import OnMPI
from flambeau.distributed.groups.process_group import BackendKind, ProcessGroup
from flambeau.distributed.mpi import library
from flambeau.distributed.mpi.wire import Alone, Wire
from flambeau.distributed.stores import PrefixStore, Store, TCPStore
from flambeau.distributed.watch.watcher import Watcher

ON_MPI = ("gloo", "mpi")


@dataclass
class World:
    """What all the groups between one init_process_group and the next share.

    stores  those opened for it
    first   the group of all ranks, whose end is the end of the world
    """

    wire: Wire
    watcher: Watcher
    stores: list[TCPStore]
    first: ProcessGroup | None = None

    def end(self) -> None:
        self.watcher.leave()


def start(
    store: Store | None,
    rank: int,
    world_size: int,
    *,
    backend: str,
    timeout: timedelta,
    device_id: device | None = None,
    options: Any = None,
    name: str,
    desc: str = "default_pg",
) -> ProcessGroup:
    """The group of all ranks. Without a store they must have been started by mpiexec or srun."""
    kinds = engines(backend)
    world = _begin(store, rank, world_size, name, timeout)
    group = ProcessGroup(store, rank, world_size)
    on_mpi = OnMPI(world.wire, world.watcher, name, desc, range(world_size), timeout)
    group._world, group._on_mpi, world.first = world, on_mpi, group
    return _equip(group, kinds, on_mpi, device_id, options, name, desc)


def subgroup(
    parent: ProcessGroup,
    ranks: Sequence[int],
    backend: str | None,
    timeout: timedelta | None,
    options: Any,
    name: str,
    desc: str,
    local: bool,
) -> ProcessGroup | None:
    """A group of some of the parent's ranks; None for the others."""
    kinds = engines(backend) if backend else parent._kinds
    ranks, whole = list(ranks), parent._on_mpi
    timeout = timeout or whole.timeout
    if local:
        if parent.rank() not in ranks:
            return None
        _meet(PrefixStore(f"local/{name}", parent._store), parent.rank(), ranks, timeout)
        on_mpi = whole.part(ranks, name, desc, timeout, zlib.crc32(name.encode()) % (1 << 14))
    else:
        on_mpi = whole.subgroup(ranks, name, desc, timeout)
        if on_mpi is None:
            return None
    group = ProcessGroup(parent._store and PrefixStore(f"{name}/", parent._store), ranks.index(parent.rank()), len(ranks))
    group._world, group._on_mpi = parent._world, on_mpi
    group.ranks = on_mpi.ranks
    return _equip(group, kinds, on_mpi, parent.bound_device_id, options, name, desc)


def engines(backend: str) -> dict[str, str]:
    """The engine for each type of device.

    >>> engines("gloo"), engines("cpu:gloo,cuda:nccl")
    ({'cpu': 'gloo', 'cuda': 'gloo'}, {'cpu': 'gloo', 'cuda': 'nccl'})
    """
    if ":" in backend:
        return dict(part.strip().lower().split(":") for part in backend.split(","))
    kind = backend.lower()
    return {"cuda": "nccl"} if kind == "nccl" else {"cpu": kind, "cuda": kind}


def _equip(
    group: ProcessGroup, kinds: dict[str, str], on_mpi: OnMPI, device_id: device | None, options: Any, name: str, desc: str
) -> ProcessGroup:
    group._kinds = kinds
    group.group_name, group.group_desc, group.bound_device_id = name, desc, device_id
    on_mpi.kind = next((kind for kind in kinds.values() if kind in ON_MPI), "gloo")
    for place, kind in kinds.items():
        if kind in ON_MPI:
            engine: Any = on_mpi
        elif kind == "nccl":
            from flambeau.distributed.nccl.engine import OnNCCL

            engine = OnNCCL(on_mpi, device_id, options)
        else:
            raise ValueError(f"backend {kind!r} is none of gloo, mpi and nccl")
        group._register_backend(device(place), BackendKind.of(kind), engine)
    return group


def _begin(store: Store | None, rank: int, size: int, name: str, timeout: timedelta) -> World:
    if size == 1:
        watcher = Watcher(None, "", 0, 1, lambda: None)
        watcher.start()
        return World(Alone(), watcher, [])
    wire: Wire | None = None
    if store is None:
        started, comm = library.as_started(rank, size)
        wire = Wire(started, comm)
    connection, opened, hosts = _connection(store, wire, rank, size, name)
    if wire is None:
        wire = Wire(*library.communicator(store, rank, size, name, timeout))
    watcher = Watcher(connection, f"watch/{name}", rank, size, wire.library.waiter.alarm, hosts)
    watcher.start()
    return World(wire, watcher, opened)


def _connection(store: Store | None, wire: Wire | None, rank: int, size: int, name: str) -> tuple[TCPStore, list[TCPStore], bool]:
    """A connection for the watcher, the store if one was opened for it, and whether it is here: see Note [what holds the ranks together]."""
    base = store
    while isinstance(base, PrefixStore):
        base = base.underlying_store
    if isinstance(base, TCPStore):
        return base.clone(), [], base.hosts
    host = os.environ.get("MASTER_ADDR", "127.0.0.1")
    opened = [TCPStore(host, 0, is_master=True, wait_for_workers=False)] if rank == 0 else []
    said = f"{host} {opened[0].port}" if opened else ""
    if wire is not None:
        said = wire.library.mpi.COMM_WORLD.bcast(said)
    else:
        assert store is not None
        if opened:
            store.set(f"{name}/watch", said)
        said = store.get(f"{name}/watch").decode()
    host, port = said.split()
    return TCPStore(host, int(port), is_master=False, wait_for_workers=False), opened, bool(opened)


def _meet(store: Store, rank: int, ranks: Sequence[int], timeout: timedelta) -> None:
    """Wait until all of these ranks are here."""
    store.set(str(rank), b"here")
    store.wait([str(other) for other in ranks], timeout)
