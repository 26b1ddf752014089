"""new_group: a group of some of the processes. All processes call it, in the same order, also those that will not be in the group.

pair = new_group([0, 2])
if rank in (0, 2):
    all_reduce(tensor, group=pair)
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from flambeau.distributed.backends import Backend, BackendConfig
from flambeau.distributed.collectives.initialize import (
    check_backends,
    default_timeout,
    made_by_plugin,
    next_group,
    plugin_of,
    store_of,
)
from flambeau.distributed.collectives.ranks import get_process_group_ranks, get_world_size
from flambeau.distributed.collectives.registry import _hash_ranks_to_str, _register_process_group
from flambeau.distributed.collectives.world import GroupMember, _check_valid_timeout, _get_default_group, _group_or_default_group, _world

if TYPE_CHECKING:
    from flambeau.devices import device
    from flambeau.distributed.groups import ProcessGroup

__all__ = ["new_group", "new_subgroups", "new_subgroups_by_enumeration", "shrink_group", "split_group"]

SHRINK_DEFAULT, SHRINK_ABORT = 0, 1


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any | None = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: device | None = None,
    sort_ranks: bool = True,
) -> Any:
    """A group of the processes with these ranks (None: all), numbered in the order of their ranks, or as given with `sort_ranks=False`.

    GroupMember.NON_GROUP_MEMBER in processes that are not in it. With `use_local_synchronization` only the members call this, and it waits
    for nobody else; others get None. `backend` and `timeout` are those of the group of all processes unless said otherwise.
    """
    return _new_group_with_tag(
        ranks,
        timeout,
        backend,
        pg_options,
        None,
        use_local_synchronization,
        group_desc=group_desc,
        device_id=device_id,
        sort_ranks=sort_ranks,
    )


def _new_group_with_tag(
    ranks: Sequence[int] | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    backend_options: Any | None = None,
    pg_tag: str | None = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: device | None = None,
    sort_ranks: bool = True,
) -> Any:
    """new_group with a tag by which the group can be found again."""
    everyone = _get_default_group()
    if device_id is not None and device_id.type == "cpu":
        raise ValueError(f"new_group: device_id is the GPU of this process, not {device_id}")
    if device_id is not None and everyone.bound_device_id not in (None, device_id):
        raise ValueError(f"new_group: device_id={device_id}, but init_process_group bound this process to {everyone.bound_device_id}")
    members = _check_ranks(ranks, everyone.size(), sort_ranks)
    asked = Backend(backend) if backend else _world.pg_map[everyone][0]
    config = BackendConfig(asked) if backend else BackendConfig(_world.pg_backend_config[everyone])
    if timeout is None:
        timeout = default_timeout(config)
    _check_valid_timeout(timeout)
    check_backends(config)
    if use_local_synchronization and everyone.rank() not in members:
        return None
    name = _name_of(members) if use_local_synchronization else str(next_group())
    pg: ProcessGroup | None
    if plugin_of(config):
        pg = None
        if everyone.rank() in members:
            store = _world.pg_map[everyone][1]
            pg = made_by_plugin(store, members.index(everyone.rank()), len(members), config, timeout, backend_options, members, name)
    else:
        pg = everyone.subgroup(
            members,
            backend=asked if backend and asked != Backend.UNDEFINED else None,
            timeout=timeout,
            options=backend_options,
            name=name,
            desc=group_desc or "undefined",
            use_local_synchronization=use_local_synchronization,
        )
    return _remember(pg, members, name, asked, config, pg_tag)


def _remember(pg: ProcessGroup | None, members: list[int], name: str, backend: str, config: BackendConfig, tag: str | None = None) -> Any:
    if pg is None:
        return GroupMember.NON_GROUP_MEMBER
    store = store_of(pg, None)
    if store is None:
        store = _own_corner(name)
    _world.add(pg, members, name=name, backend=backend, config=str(config), store=store, tag=f"user:{tag}" if tag else None)
    _register_process_group(name, pg)
    return pg


def _own_corner(name: str) -> Any:
    """A part of the first group's store."""
    from flambeau.distributed.stores import PrefixStore

    store = _world.pg_map[_get_default_group()][1]
    return None if store is None else PrefixStore(f"{name}/", store)


def _name_of(members: list[int]) -> str:
    """A name that the members find without asking anybody: by who they are, and the how many-th group of theirs this is."""
    name = _hash_ranks_to_str(members)
    again = sum(known.split(":")[0] == name for known in _world.pg_names.values())
    _world.group_count += 1
    return f"{name}:{again}" if again else name


def _check_ranks(ranks: Sequence[int] | None, size: int, sort: bool) -> list[int]:
    """The ranks of a new group. ValueError for what cannot be one."""
    if ranks is None:
        return list(range(size))
    members = sorted(ranks) if sort else list(ranks)
    if len(set(members)) != len(members):
        raise ValueError(f"ranks list must not contain duplicate entries, got {list(ranks)}")
    if len(members) > size:
        raise ValueError(
            f"the new group's world size should be less or equal to the world size set by init_process_group: {members} are {len(members)} ranks of {size}"
        )
    if not members:
        raise TypeError("new_group: a group of no processes cannot be made, ranks is empty")
    for rank in members:
        if not 0 <= rank < size:
            raise ValueError(f"Rank {rank} is out of range. Valid ranks are 0 to {size - 1} (world_size={size})")
    return members


def new_subgroups(
    group_size: int | None = None,
    group: ProcessGroup | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any | None = None,
    group_desc: str | None = None,
) -> tuple[ProcessGroup, list[ProcessGroup]]:
    """Groups of `group_size` neighbours each, all processes in one of them: (the one this process is in, all of them).

    Without a size there is one group for each machine, of as many processes as it has GPUs.
    """
    if group_size is None:
        from flambeau import cuda

        if not cuda.is_available():
            raise ValueError(
                "Default group size only takes effect when CUDA is available. Pass group_size= where the processes use no GPUs"
            )
        group_size = cuda.device_count()
    if group_size <= 0:
        raise ValueError(f"The arg 'group_size' ({group_size}) must be positive")
    size = get_world_size(group)
    if group_size > size:
        raise ValueError(f"The arg 'group_size' ({group_size}) must not exceed the world size ({size})")
    if size % group_size:
        raise ValueError(f"The world size ({size}) must be divisible by 'group_size={group_size}': every process is in one of the groups")
    ranks = get_process_group_ranks(_group_or_default_group(group))
    lists = [ranks[start : start + group_size] for start in range(0, size, group_size)]
    return new_subgroups_by_enumeration(lists, timeout, backend, pg_options, group_desc)


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Sequence[Sequence[int]],
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any | None = None,
    group_desc: str | None = None,
) -> tuple[Any, list[ProcessGroup]]:
    """A group for each list of ranks, no rank in two of them: (the one this process is in, all of them). Every process passes the same lists."""
    if ranks_per_subgroup_list is None or len(ranks_per_subgroup_list) == 0:
        raise ValueError("The arg 'ranks_per_subgroup_list' cannot be empty")
    places: dict[int, Sequence[int]] = {}
    made, mine = [], None
    me = _get_default_group().rank()
    for ranks in ranks_per_subgroup_list:
        for rank in ranks:
            if rank in places:
                raise ValueError(f"Rank {rank} has appeared in both subgroup {list(places[rank])} and {list(ranks)}")
            places[rank] = ranks
    for ranks in ranks_per_subgroup_list:
        pg = new_group(ranks, timeout, backend, pg_options, group_desc=group_desc)
        made.append(pg)
        if me in ranks:
            mine = pg
    return mine, made


def split_group(
    parent_pg: ProcessGroup | None = None,
    split_ranks: list | None = None,
    timeout: timedelta | None = None,
    pg_options: Any | None = None,
    group_desc: str | None = None,
    backend: str | None = None,
) -> ProcessGroup | None:
    """Take a group apart: one group for each list of ranks (ranks of the parent), of which this process gets its own, or None.

    All processes of the parent call this, with the same lists, and no process is in two of them.
    """
    if not split_ranks:
        raise ValueError("split_ranks cannot be None or empty: pass a list of lists of ranks, as [[0, 1], [2, 3]]")
    parent = _group_or_default_group(parent_pg)
    seen: set[int] = set()
    for ranks in split_ranks:
        _check_ranks(ranks, parent.size(), True)
        if seen & set(ranks):
            raise ValueError(f"split_group: ranks {sorted(seen & set(ranks))} are in two of the groups {split_ranks}")
        seen |= set(ranks)
    asked = Backend(backend) if backend else _world.pg_map[parent][0]
    config = BackendConfig(asked if backend else _world.pg_backend_config[parent])
    if plugin_of(config):
        raise NotImplementedError(f"split_group of a group whose backend the program brought ({config}): new_group() makes them one by one")
    timeout = default_timeout(config) if timeout is None else timeout
    _check_valid_timeout(timeout)
    global_ranks = get_process_group_ranks(parent)
    mine: ProcessGroup | None = None
    for place, ranks in enumerate(split_ranks):
        members = [global_ranks[rank] for rank in ranks]
        name = f"{_world.pg_names[parent]}:split:{next_group()}"
        pg = parent.subgroup(
            list(ranks),
            backend=backend,
            timeout=timeout,
            options=pg_options,
            name=name,
            desc=group_desc or f"{parent.group_desc}:split:{place}",
        )
        if pg is not None:
            mine = _remember(pg, members, name, asked, config)
    return mine


def shrink_group(
    ranks_to_exclude: list[int], group: ProcessGroup | None = None, shrink_flags: int = SHRINK_DEFAULT, pg_options: Any | None = None
) -> ProcessGroup:
    """A group without ranks that have failed: not possible on MPI, whose world ends with any of its processes."""
    if not isinstance(ranks_to_exclude, list):
        raise TypeError(f"ranks_to_exclude must be a list, got {type(ranks_to_exclude).__name__}")
    if not ranks_to_exclude:
        raise ValueError("ranks_to_exclude cannot be empty: name at least one rank that the new group is to be without")
    if not isinstance(shrink_flags, int) or shrink_flags not in (SHRINK_DEFAULT, SHRINK_ABORT):
        raise ValueError(f"shrink_flags is SHRINK_DEFAULT (0) or SHRINK_ABORT (1), not {shrink_flags!r}")
    pg = _group_or_default_group(group)
    if pg.size() < 2:
        raise ValueError(f"Cannot shrink a process group with size {pg.size()}. Group must have at least 2 ranks to support shrinking.")
    raise NotImplementedError(
        "torch.distributed.shrink_group: going on without ranks that have failed. Start again with fewer processes (the launcher's --max_restarts does), "
        "or use new_group() for a part of the processes while all of them live"
    )
