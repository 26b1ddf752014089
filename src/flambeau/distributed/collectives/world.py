"""World: the groups that this process belongs to. `group.WORLD` is the first of them, made by `init_process_group`, with all processes.

Functions take `group=None` for it, and GroupMember.NON_GROUP_MEMBER for a group that this process is not in.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import timedelta

    from flambeau.devices import device
    from flambeau.distributed.groups import ProcessGroup, Work

__all__ = ["GroupMember", "GroupName", "group"]

GroupName = str
RankType = int


class _World:
    """What is known about each group. The first one is `default_pg`.

    pg_map             group -> (backend, store)
    pg_names           group -> name, equal in all processes
    pg_group_ranks     group -> {rank in the program: rank in the group}
    pg_backend_config  group -> "cpu:gloo,cuda:nccl"
    tags_to_pg         tag -> groups, pg_to_tag the other way round: how a graph of operations finds a group again
    pg_coalesce_state  group -> calls that wait to be made as one
    group_count        how many groups there have been
    """

    def __init__(self) -> None:
        self.default_pg: ProcessGroup | None = None
        self.pg_map: dict[ProcessGroup, tuple[str, Any]] = {}
        self.pg_names: dict[ProcessGroup, str] = {}
        self.pg_group_ranks: dict[ProcessGroup, dict[int, int]] = {}
        self.pg_backend_config: dict[ProcessGroup, str] = {}
        self.tags_to_pg: dict[str, list[ProcessGroup]] = {}
        self.pg_to_tag: dict[ProcessGroup, str] = {}
        self.pg_coalesce_state: dict[ProcessGroup, list] = {}
        self.group_count = 0

    @property
    def pg_config_info(self) -> list[dict[str, Any]]:
        """A line about each group: its name, backends, ranks. Ranks are left out of groups that have everyone."""
        everyone = self.default_pg.size() if self.default_pg is not None else 0
        return [
            {
                "pg_name": self.pg_names[pg],
                "pg_desc": pg.group_desc,
                "backend_config": self.pg_backend_config[pg],
                "ranks": [] if len(ranks) == everyone else list(ranks),
                "group_size": len(ranks),
                "group_count": self.group_count,
            }
            for pg, ranks in self.pg_group_ranks.items()
        ]

    def add(self, pg: ProcessGroup, ranks: list[int], *, name: str, backend: str, config: str, store: Any, tag: str | None = None) -> None:
        """Remember a group."""
        own_tag = tag or f"ptd:{name}"
        self.pg_map[pg] = (backend, store)
        self.pg_names[pg] = name
        self.pg_group_ranks[pg] = {rank: place for place, rank in enumerate(ranks)}
        self.pg_backend_config[pg] = config
        self.pg_to_tag[pg] = own_tag
        self.tags_to_pg.setdefault(own_tag, []).append(pg)
        if tag is None:
            self.tags_to_pg.setdefault("", []).append(pg)

    def forget(self, pg: ProcessGroup) -> None:
        """Forget a group that has ended."""
        for table in (self.pg_map, self.pg_names, self.pg_group_ranks, self.pg_backend_config, self.pg_to_tag, self.pg_coalesce_state):
            table.pop(pg, None)
        for groups in self.tags_to_pg.values():
            while pg in groups:
                groups.remove(pg)
        if pg is self.default_pg:
            self.default_pg = None


_world = _World()


class _HasWorld(type):
    @property
    def WORLD(cls) -> ProcessGroup | None:
        """The group of all processes; None before init_process_group."""
        return _world.default_pg

    @WORLD.setter
    def WORLD(cls, pg: ProcessGroup | None) -> None:
        _world.default_pg = pg


class group(metaclass=_HasWorld):
    """`group.WORLD`."""


class GroupMember(metaclass=_HasWorld):
    """`GroupMember.WORLD`, and what `new_group` gives to processes that are not in the new group."""

    NON_GROUP_MEMBER = -100


def is_initialized() -> bool:
    """Whether there is a group of all processes: between init_process_group and destroy_process_group."""
    return _world.default_pg is not None


def _get_default_group() -> ProcessGroup:
    """The group of all processes. ValueError before there is one."""
    pg = _world.default_pg
    if pg is None:
        raise ValueError(
            "Default process group has not been initialized, please make sure to call init_process_group. A program for one process, too, can call it: "
            'init_process_group("gloo", init_method="tcp://127.0.0.1:29500", rank=0, world_size=1)'
        )
    return pg


def _update_default_pg(pg: ProcessGroup | None) -> None:
    """Make this the group that calls without one mean."""
    _world.default_pg = pg


def _group_or_default_group(group: ProcessGroup | None = None) -> ProcessGroup:
    """The group that a call means: `group`, or everyone."""
    return _get_default_group() if group is None else known(group)


def known(pg: Any) -> ProcessGroup:
    """A process group that can be called. ValueError for what is none."""
    if hasattr(pg, "allreduce"):
        return pg
    if _rank_not_in_group(pg):
        raise ValueError("Invalid process group specified: this process is not in the group. Ask `if rank in ranks:` first")
    raise ValueError(
        f"Process group {pg} is not initialized in the world group map: group= takes None for all processes, or what new_group() returned in a member"
    )


def _rank_not_in_group(group: ProcessGroup | None) -> bool:
    """Whether this process is not in the group."""
    return group is not None and type(group) is int and group == GroupMember.NON_GROUP_MEMBER


def _warn_not_in_group(op_name: str, stacklevel: int = 3) -> None:
    """Say that a call does nothing here."""
    rank = -1 if _world.default_pg is None else _world.default_pg.rank()
    warnings.warn(
        f"Running {op_name} on global rank {rank} which does not belong to the given group: it does nothing here. Ask `if rank in ranks:` first",
        stacklevel=stacklevel,
    )


def stays_out(group: ProcessGroup | None, op_name: str) -> bool:
    """Whether the call is none of this process's business, which a warning says."""
    if not _rank_not_in_group(group):
        return False
    _warn_not_in_group(op_name, stacklevel=4)
    return True


def waited(work: Work | None, async_op: bool) -> Work | None:
    """What a call gives that has begun: its work with `async_op`, else nothing, when it is done."""
    if async_op:
        return work
    if work is not None:
        work.wait()
    return None


def _check_valid_timeout(timeout: Any) -> None:
    """TypeError for a timeout that is no timedelta."""
    from datetime import timedelta

    if not isinstance(timeout, timedelta):
        raise TypeError(
            f"Expected timeout argument to be of type datetime.timedelta, got {timeout!r}: write datetime.timedelta(seconds=...)"
        )


def _set_pg_timeout(timeout: timedelta, group: ProcessGroup | None = None) -> None:
    """Let a group wait at most this long in each call."""
    _check_valid_timeout(timeout)
    if not _rank_not_in_group(group):
        _group_or_default_group(group).set_timeout(timeout)


def _device_capability(group: ProcessGroup | None = None) -> list[str]:
    """The types of devices whose tensors the group takes."""
    return [device.type for device in _group_or_default_group(group)._device_types]


def _get_object_coll_device(group: ProcessGroup | None = None) -> str:
    """The type of device on which objects travel: the CPU if the group takes it."""
    devices = _device_capability(group)
    return "cpu" if "cpu" in devices or not devices else devices[0]


def _get_pg_default_device(group: ProcessGroup | None = None) -> device:
    """The device of objects, under an older name."""
    from flambeau.devices import device

    warnings.warn("_get_pg_default_device is an old name: ask group._device_types for the devices of a group", stacklevel=2)
    return device(_get_object_coll_device(group))
