"""init_process_group: find the other processes, and make the group of all of them. destroy_process_group ends it.

init_process_group("gloo")                                           # RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, as launchers set them
init_process_group("gloo", init_method="tcp://10.0.0.1:29500", rank=0, world_size=2)
init_process_group("gloo", store=store, rank=0, world_size=2)
init_process_group("mpi")                                            # under mpiexec or srun, which number the processes themselves
"""

from __future__ import annotations

import os
import warnings
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from flambeau.distributed.backends import Backend, BackendConfig, is_gloo_available, is_mpi_available, is_nccl_available
from flambeau.distributed.collectives.registry import _register_process_group, _unregister_all_process_groups, _unregister_process_group
from flambeau.distributed.collectives.world import _check_valid_timeout, _rank_not_in_group, _world
from flambeau.distributed.constants import default_pg_nccl_timeout, default_pg_timeout

if TYPE_CHECKING:
    from flambeau.devices import device
    from flambeau.distributed.groups import ProcessGroup
    from flambeau.distributed.stores import Store

__all__ = ["destroy_process_group", "init_process_group"]

INSTALL = {
    "gloo": "groups on CPUs need MPI: pip install 'flambeau[dist]' (mpi4py and mpich)",
    "mpi": "groups on CPUs need MPI: pip install 'flambeau[dist]' (mpi4py and mpich)",
    "nccl": "groups on GPUs need CuPy with NCCL: pip install 'flambeau[cuda]', and a GPU",
}


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Store | None = None,
    group_name: str = "",
    pg_options: Any | None = None,
    device_id: device | int | None = None,
    _ranks: list[int] | None = None,
) -> None:
    """Make the group of all processes; every one of them calls this, and it returns when all have.

    backend     "gloo" or "mpi" (both are MPI), "nccl", "cpu:gloo,cuda:nccl", or None for what the devices of this machine want
    init_method where processes meet: "env://" (also None), "tcp://host:port", "file:///path". Or `store`, with rank and world_size
    timeout     how long a call waits for the others; half an hour, ten minutes for nccl
    device_id   the GPU of this process, so that connections are made now rather than by the first call
    """
    if _world.default_pg is not None:
        raise ValueError("trying to initialize the default process group twice! destroy_process_group() ends the first one")
    if store is not None:
        if not hasattr(store, "set_timeout"):
            raise TypeError(f"init_process_group: store takes a TCPStore, FileStore, HashStore or PrefixStore, not {store!r}")
        assert init_method is None, "Cannot specify both init_method and store."
        assert world_size > 0, "world_size must be positive if using store"
        assert rank >= 0, "rank must be non-negative if using store"
    bound = bound_device(device_id)
    asked = Backend(backend) if backend is not None else Backend.UNDEFINED
    config = BackendConfig(asked)
    timeout = default_timeout(config) if timeout is None else timeout
    _check_valid_timeout(timeout)
    check_backends(config)
    if world_size > 0 and rank >= world_size:
        raise RuntimeError(f"init_process_group: rank {rank} is not one of the {world_size} ranks 0 to {world_size - 1}: rank < world_size")
    store, rank, world_size = meet(asked, init_method, store, rank, world_size, timeout)
    name = str(_world.group_count)
    pg = make_first(store, rank, world_size, asked, config, timeout, bound, pg_options, name)
    next_group()
    _world.default_pg = pg
    _world.add(pg, list(range(world_size)), name=name, backend=asked, config=str(config), store=store_of(pg, store))
    _register_process_group(name, pg)
    if _world.pg_map[pg][1] is None:
        from flambeau.distributed.session_key import share

        share(pg)
    elif world_size > 1 and getattr(pg, "_world", None) is not None:
        from flambeau.distributed.session_key import session_key

        session_key()  # now: rank 0, which has the store, may be gone when it is needed


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """End a group; without one, or for the group of all processes, end all of them. Then init_process_group may be called again."""
    if _rank_not_in_group(group):
        return
    pg = _world.default_pg if group is None else group
    assert pg is not None, "Process group cannot be None: there is no group to destroy, init_process_group has not been called"
    if pg not in _world.pg_map:
        raise ValueError(f"Invalid process group specified: {pg} is none, or was destroyed before")
    if pg is not _world.default_pg:
        _end(pg)
        return
    for each in list(_world.pg_map)[::-1]:  # the first group last: the others stand on it
        _end(each)
    _unregister_all_process_groups()
    _world.__init__()  # type: ignore[misc]


def _end(pg: ProcessGroup) -> None:
    name = _world.pg_names[pg]
    try:
        pg.shutdown()
    finally:
        _world.forget(pg)
        _unregister_process_group(name)


def _abort_process_group(group: ProcessGroup | None = None) -> None:
    """End a group, or all of them, without waiting for what is under way."""
    if _rank_not_in_group(group):
        return
    pg = _world.default_pg if group is None else group
    if pg is None or pg not in _world.pg_map:
        raise ValueError("Invalid process group specified or has been destroyed.")
    for each in list(_world.pg_map)[::-1] if pg is _world.default_pg else [pg]:
        name = _world.pg_names[each]
        each.abort()
        _world.forget(each)
        _unregister_process_group(name)


def next_group() -> int:
    """The number of a new group."""
    number = _world.group_count
    _world.group_count += 1
    return number


def bound_device(device_id: device | int | None) -> device | None:
    """The GPU that a process says it keeps to."""
    from flambeau import cuda
    from flambeau.devices import device

    if device_id is None:
        return None
    if isinstance(device_id, int):
        if not cuda.is_available():
            raise ValueError(
                f"device_id is an int, {device_id}: the number of an accelerator, but no accelerator was found on this machine. Leave it out"
            )
        return device("cuda", device_id)
    if not isinstance(device_id, device):
        raise AttributeError(
            f'device_id takes a torch.device such as torch.device("cuda", 0), not {device_id!r}, which has no attribute "type"'
        )
    if device_id.type == "cpu" or device_id.index is None:
        raise ValueError(
            f'init_process_group device_id parameter must be an accelerator with an index, as torch.device("cuda", 0), not {device_id}'
        )
    return device_id


def default_timeout(config: BackendConfig) -> timedelta:
    """How long a group waits that is not told: ten minutes if all it has is NCCL, else half an hour."""
    return _get_default_timeout("nccl" if set(config.device_backend_map.values()) == {"nccl"} else "gloo")


def _get_default_timeout(backend: str) -> timedelta:
    """How long groups of this backend wait when they are not told."""
    if backend == Backend.NCCL and default_pg_nccl_timeout is not None:
        return default_pg_nccl_timeout
    return default_pg_timeout


def check_backends(config: BackendConfig) -> None:
    """Fail early, with what to install, if a backend cannot work here."""
    there = {"gloo": is_gloo_available, "mpi": is_mpi_available, "nccl": is_nccl_available}
    for backend in dict.fromkeys(config.device_backend_map.values()):
        if backend.upper() in Backend._plugins:
            continue
        if backend == Backend.FAKE:
            raise NotImplementedError("the fake backend, whose collectives do nothing: run one process with gloo and world_size=1 instead")
        if backend not in there:
            raise AssertionError(
                f'Unknown backend type {backend}: there are gloo, mpi and nccl, and what Backend.register_backend("{backend}", ...) brings'
            )
        if not there[backend]():
            raise RuntimeError(f"Distributed package doesn't have {backend.upper()} built in: {INSTALL[backend]}")


def meet(
    backend: str, init_method: str | None, store: Store | None, rank: int, world_size: int, timeout: timedelta
) -> tuple[Store | None, int, int]:
    """Where the processes find each other: (store, rank, world_size). No store where MPI itself started them."""
    if store is not None:
        return for_this_time(store, rank, timeout), rank, world_size
    if init_method in (None, "env://") and not {"RANK", "MASTER_ADDR"} <= os.environ.keys():
        from flambeau.distributed.mpi.started import started_by_mpi

        started = started_by_mpi()
        if started is not None and os.environ.get("RANK", str(started[0])) != str(started[0]):
            started = None  # somebody has numbered the processes anew
        if started is not None and (rank, world_size) in ((-1, -1), started, (-1, started[1]), (started[0], -1)):
            if "MASTER_ADDR" not in os.environ or backend == Backend.MPI:
                return None, *started
            rank, world_size = started
        elif backend == Backend.MPI and init_method is None:
            if started is None and (rank, world_size) == (-1, -1):
                from flambeau.distributed.stores import HashStore

                return HashStore(), 0, 1  # as MPI programs that nobody launched: a world of one
            if started is not None:
                warnings.warn(
                    f"rank={rank} and world_size={world_size} are ignored: the MPI launcher numbered this process {started}", stacklevel=3
                )
                return None, *started
    from flambeau.distributed.rendezvous import rendezvous

    found, rank, world_size = next(iter(rendezvous(init_method or "env://", rank, world_size, timeout=timeout)))
    found.set_timeout(timeout)
    return found, rank, world_size


def for_this_time(store: Store, rank: int, timeout: timedelta) -> Store:
    """A corner of the program's own store for this group: the store outlives it, and its keys must not answer for those of the next."""
    from flambeau.distributed.stores import PrefixStore

    store.set_timeout(timeout)
    time = store.add(f"default_pg/{rank}", 1)
    return PrefixStore(f"default_pg/{time}", store)


def make_first(
    store: Any, rank: int, size: int, backend: str, config: BackendConfig, timeout: timedelta, bound: Any, options: Any, name: str
) -> ProcessGroup:
    """The group of all processes, from its backend."""
    if plugin_of(config):
        return made_by_plugin(store, rank, size, config, timeout, options, list(range(size)), name)
    from flambeau.distributed import groups

    return groups.start(
        store,
        rank,
        size,
        backend=str(config) if backend == Backend.UNDEFINED else backend,
        timeout=timeout,
        device_id=bound,
        options=options,
        name=name,
        desc="default_pg",
    )


def plugin_of(config: BackendConfig) -> str | None:
    """The backend brought by the program that makes the whole group, if one does."""
    backends = {name.upper() for name in config.device_backend_map.values()}
    brought = backends & Backend._plugins.keys()
    if not brought:
        return None
    if len(backends) > 1:
        raise NotImplementedError(
            f"a group of several backends, {config}, of which the program brought {sorted(brought)}: make one group for each of them"
        )
    return brought.pop()


def made_by_plugin(
    store: Any, rank: int, size: int, config: BackendConfig, timeout: timedelta, options: Any, ranks: list[int], name: str
) -> ProcessGroup:
    """A group from the function that the program registered for its backend."""
    from flambeau.distributed.options import _DistributedBackendOptions
    from flambeau.distributed.stores import PrefixStore

    plugin = Backend._plugins[plugin_of(config) or ""]
    own = PrefixStore(f"{name}/", store) if store is not None else None
    if not plugin.extended_api:
        return plugin.creator_fn(own, rank, size, timeout)
    told = _DistributedBackendOptions()
    told.store, told.group_rank, told.group_size, told.timeout, told.group_id, told.global_ranks_in_group = (
        own,
        rank,
        size,
        timeout,
        name,
        ranks,
    )
    return plugin.creator_fn(told, options)


def store_of(pg: ProcessGroup, store: Any) -> Any:
    """The store that the group has: the one that processes met at, or one of its own where MPI brought them together."""
    if store is not None:
        return store
    ask = getattr(pg, "get_group_store", None)
    return ask() if ask is not None else None
