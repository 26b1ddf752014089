"""Registry: finding a group again, by its name, or by its members and a tag. Graphs of operations carry these instead of the group."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from flambeau.distributed.collectives.world import _get_default_group, _group_or_default_group, _rank_not_in_group, _world

if TYPE_CHECKING:
    from flambeau.distributed.groups import ProcessGroup

_by_name: dict[str, ProcessGroup] = {}


def _register_process_group(group_name: str, group: ProcessGroup) -> None:
    """Let `_resolve_process_group(group_name)` find this group."""
    _by_name[group_name] = group


def _unregister_process_group(group_name: str) -> None:
    """Let it be found no more."""
    _by_name.pop(group_name, None)


def _unregister_all_process_groups() -> None:
    """Let none be found."""
    _by_name.clear()


def _resolve_process_group(group_name: Any) -> ProcessGroup:
    """The group of this name; a group is itself."""
    if hasattr(group_name, "allreduce"):
        return group_name
    if group_name not in _by_name:
        raise RuntimeError(f"Could not resolve the process group registered under the name {group_name}: there are {list(_by_name)}")
    return _by_name[group_name]


def _get_group_size_by_name(group_name: Any) -> int:
    """How many processes the group of this name has."""
    return _resolve_process_group(group_name).size()


def _get_process_group_name(pg: ProcessGroup) -> str:
    """The name of a group: "None" for what is none."""
    return _world.pg_names.get(pg, "None")


def _get_process_group_store(pg: ProcessGroup) -> Any:
    """The store of a group."""
    return _world.pg_map[pg][1]


def _get_process_group_uid(pg: ProcessGroup) -> int:
    """A number of this process's own for the group."""
    return id(pg)


def _get_default_store() -> Any:
    """The store of the group of all processes."""
    return _world.pg_map[_get_default_group()][1]


def _get_group_tag(pg: ProcessGroup) -> str:
    """The tag of a group: the one it was made with, or one of its own."""
    return _world.pg_to_tag[pg].removeprefix("user:")


def _find_pg_by_ranks_and_tag(tag: str, ranks: list[int]) -> ProcessGroup | None:
    """The group with these members and this tag. "" finds those that were made without one."""
    if tag and not tag.startswith(("ptd:", "user:")):
        tag = f"user:{tag}"
    wanted = set(ranks)
    for pg in _world.tags_to_pg.get(tag, []):
        if pg.size() == len(ranks) and set(_world.pg_group_ranks[pg]) == wanted:
            return pg
    return None


def _find_or_create_pg_by_ranks_and_tag(tag: str, ranks: list[int], stride: int) -> ProcessGroup:
    """The group of this process among `ranks`, which are groups of `stride` members one after the other."""
    if len(ranks) % stride:
        raise ValueError(f"{len(ranks)} ranks are not groups of {stride}: {ranks}")
    me = _get_default_group().rank()
    mine = next((ranks[start : start + stride] for start in range(0, len(ranks), stride) if me in ranks[start : start + stride]), None)
    if mine is None:
        raise RuntimeError(f"rank {me} is in none of the groups {ranks}")
    found = _find_pg_by_ranks_and_tag(tag, mine)
    if found is not None:
        return found
    if not tag:
        raise ValueError(
            f"there is no group of ranks {mine}, and one without a tag is not made on the way: new_group({mine}) makes it, in all processes"
        )
    from flambeau.distributed.collectives.subgroups import _new_group_with_tag

    return _new_group_with_tag(mine, pg_tag=tag)


def _resolve_group_name_by_ranks_and_tag(ranks: list[int], tag: str) -> str:
    """The name of the group with these members and this tag."""
    pg = _find_pg_by_ranks_and_tag(tag, ranks)
    if pg is None:
        raise ValueError(f"there is no group of ranks {ranks} with tag {tag!r}")
    return pg.group_name


def _hash_ranks_to_str(ranks: list[int]) -> str:
    """A name that follows from the members alone, so that they need not ask anybody."""
    return hashlib.sha1("_".join(map(str, ranks)).encode(), usedforsecurity=False).hexdigest()


def _get_all_pg_configs() -> list[dict[str, Any]]:
    """What `_get_pg_config` says, of every group."""
    return [_get_pg_config(pg) for pg in _world.pg_map]


def _get_pg_config(group: ProcessGroup | None = None) -> dict[str, Any]:
    """Name, backends and members of a group."""
    pg = _group_or_default_group(group)
    return {
        "pg_name": _get_process_group_name(pg),
        "pg_desc": pg.group_desc,
        "backend_config": get_backend_config(pg),
        "pg_size": pg.size(),
        "ranks": list(_world.pg_group_ranks[pg]),
    }


def get_pg_count() -> int:
    """How many groups there have been since init_process_group."""
    return _world.group_count


def get_backend_config(group: ProcessGroup | None = None) -> str:
    """Which backend serves which device in the group, as "cpu:gloo,cuda:nccl"."""
    return str(_world.pg_backend_config[_member(group)])


def get_backend(group: ProcessGroup | None = None) -> str:
    """The backend that the group was asked for, as "gloo"; "undefined" if nobody asked for one."""
    return _world.pg_map[_member(group)][0]


def _member(group: ProcessGroup | None) -> ProcessGroup:
    pg = _group_or_default_group(group) if not _rank_not_in_group(group) else group
    if pg not in _world.pg_map:
        raise ValueError(f"Process group {pg} is not initialized in the world group map. Please initialize the group first.")
    return pg
