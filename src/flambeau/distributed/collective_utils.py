"""One value for all ranks, or all ranks' values, such that a failure on one rank is an exception on every rank.

    path = broadcast(make_folder, rank=0, pg=group)        # called on rank 0; if it raises there, RuntimeError everywhere
    sizes = all_gather(lambda: len(shard), pg=group)

Without a group they are for programs of one process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from flambeau.distributed.collectives.ranks import get_world_size
from flambeau.distributed.objects import all_gather_object, broadcast_object_list

__all__ = ["SyncPayload", "all_gather", "all_gather_object_enforce_type", "broadcast"]
Value = TypeVar("Value")


@dataclass
class SyncPayload(Generic[Value]):
    """What a rank tells the others: its value, or what went wrong."""

    stage_name: str | None
    success: bool
    payload: Value
    exception: Exception | None = None


def broadcast(data_or_fn: Any, *, success: bool = True, stage_name: str | None = None, rank: int = 0, pg: Any = None) -> Any:
    """The value of `rank` in the group, or what the function returns there. `success=False` (and no value) stops all ranks."""
    if not success and data_or_fn is not None:
        raise AssertionError(f"broadcast(success=False) tells all ranks to stop, and takes no value: found {data_or_fn!r:.60}")
    own = rank == (0 if pg is None else pg.rank())
    told = _told(data_or_fn if own else None, stage_name, success)
    if pg is not None:
        box = [told]
        broadcast_object_list(box, group_src=rank, group=pg)
        told = box[0]
    if not told.success:
        where = "" if told.stage_name is None else f": stage {told.stage_name}"
        why = "" if told.exception is None else f": exception {told.exception}"
        raise RuntimeError(f"Rank {rank} failed{where}{why}") from told.exception
    return told.payload


def all_gather(data_or_fn: Any, stage_name: str | None = None, pg: Any = None) -> list[Any]:
    """The values of all ranks, or what the function returns on each. Ranks that are at different stages are an error on all."""
    told = _told(data_or_fn, stage_name, True)
    if pg is None:
        if not told.success:
            raise RuntimeError(f"all_gather failed with exception {told.exception}") from told.exception
        return [told.payload]
    all_told: list[Any] = [None] * get_world_size(pg)
    all_gather_object_enforce_type(pg, all_told, told)
    stage = all_told[0].stage_name
    astray = [f"rank {i} is at stage {one.stage_name!r}, rank 0 at {stage!r}" for i, one in enumerate(all_told) if one.stage_name != stage]
    failed = [(i, one.exception) for i, one in enumerate(all_told) if not one.success]
    if failed:
        raise RuntimeError("; ".join(astray), failed) from failed[0][1]
    if astray:
        raise RuntimeError(f"all_gather: {'; '.join(astray)}")
    return [one.payload for one in all_told]


def all_gather_object_enforce_type(
    pg: Any, object_list: list[Any], obj: Any, type_checker: Callable[[Any, Any], bool] = lambda x, y: type(x) is type(y)
) -> None:
    """`all_gather_object`, and TypeError on all ranks where an object is of another type than that of rank 0."""
    all_gather_object(object_list, obj, group=pg)
    for i, other in enumerate(object_list):
        if not type_checker(object_list[0], other):
            raise TypeError(f"Object type at index {i} is {type(other)}, while first object type is {type(object_list[0])}")


def _told(data_or_fn: Any, stage_name: str | None, success: bool) -> SyncPayload:
    if not callable(data_or_fn):
        return SyncPayload(stage_name, success, data_or_fn)
    try:
        return SyncPayload(stage_name, success, data_or_fn())
    except Exception as problem:
        return SyncPayload(stage_name, False, None, problem)
