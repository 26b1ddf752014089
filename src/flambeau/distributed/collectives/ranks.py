"""Ranks: who is who. A process has a number among all processes, its rank, and another one in each group that it is in."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from flambeau.distributed.collectives.world import (
    GroupMember,
    _get_default_group,
    _group_or_default_group,
    _rank_not_in_group,
    _world,
)

if TYPE_CHECKING:
    from flambeau.distributed.groups import ProcessGroup

__all__ = ["get_global_rank", "get_group_rank", "get_node_local_rank", "get_process_group_ranks", "get_rank", "get_world_size"]


def get_rank(group: ProcessGroup | None = None) -> int:
    """The number of this process in the group, 0 to size - 1; -1 if it is not in it."""
    if _rank_not_in_group(group):
        return -1
    everyone = _get_default_group()
    if group is None or group is everyone:
        return everyone.rank()
    return get_group_rank(group, everyone.rank())


def get_world_size(group: ProcessGroup | None = None) -> int:
    """How many processes the group has; -1 if this one is not in it."""
    return -1 if _rank_not_in_group(group) else _get_group_size(group)


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """The number in the group of the process whose rank among all is `global_rank`."""
    if group is GroupMember.WORLD and group is not None:
        return global_rank
    places = _places(group)
    if global_rank not in places:
        raise ValueError(f"Global rank {global_rank} is not part of group {group}: its members are {list(places)}")
    return places[global_rank]


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """The rank among all of the process whose number in the group is `group_rank`."""
    if group is GroupMember.WORLD and group is not None:
        return group_rank
    places = _places(group)
    for rank, place in places.items():
        if place == group_rank:
            return rank
    raise ValueError(f"Group rank {group_rank} is not part of group {group}: it has {len(places)} members")


def _places(group: ProcessGroup) -> dict[int, int]:
    """{rank among all: number in the group}"""
    if group not in _world.pg_group_ranks:
        raise ValueError(f"Group {group} is not registered, please create group with torch.distributed.new_group API")
    return _world.pg_group_ranks[group]


def _get_global_rank(group: ProcessGroup, rank: int) -> int:
    """get_global_rank under an older name."""
    return get_global_rank(group, rank)


def get_process_group_ranks(group: ProcessGroup | None) -> list[int]:
    """The members of the group, by their ranks among all, in the order of their numbers in it."""
    return list(_world.pg_group_ranks[group or _get_default_group()])


def _get_group_size(group: ProcessGroup | None) -> int:
    return _group_or_default_group(group).size()


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """The number of this process among those on the same machine: LOCAL_RANK, which launchers set, else `fallback_rank`.

    >>> get_node_local_rank(fallback_rank=0) if "LOCAL_RANK" not in os.environ else 0
    0
    """
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    if fallback_rank is not None:
        return int(fallback_rank)
    raise RuntimeError(
        "LOCAL_RANK is not in the environment: no launcher started this process. Consider get_node_local_rank(fallback_rank=0) in programs that "
        "also run alone, or start with `flambeau run --nproc_per_node=2`"
    )


def _canonicalize_group_rank(
    group: ProcessGroup, global_rank: int | None = None, group_rank: int | None = None, return_global: bool = False
) -> int:
    """One rank, given either way: its number in the group, or with `return_global` its rank among all."""
    if group_rank is not None:
        if global_rank is not None:
            raise ValueError(
                f"Can't specify both group_rank and global_rank, found {group_rank} and {global_rank}: they are two ways to name one process"
            )
        return get_global_rank(group, group_rank) if return_global else group_rank
    if global_rank is None:
        raise ValueError("Must specify global_rank or group_rank: which process is meant?")
    return global_rank if return_global else get_group_rank(group, global_rank)


def _check_not_self_rank(group: ProcessGroup, rank: int, rank_type: str) -> None:
    """ValueError for a message to oneself."""
    if group.rank() == rank:
        raise ValueError(
            f"Invalid {rank_type} rank: {rank_type} rank should not be the same as the rank of the current process, {rank}. A process does not send to itself"
        )
