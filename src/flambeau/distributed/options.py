"""What a collective is told besides its tensors, one small record for each: `pg.broadcast([tensor], options)`.

Ranks in them are ranks of the group. A `timeout` of -1 ms, with which they start, stands for the group's own.

>>> BroadcastOptions(rootRank=1)
BroadcastOptions(timeout=-1 day, 23:59:59.999000, asyncOp=True, rootRank=1, rootTensor=0)
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from flambeau.distributed.reduce_op import ReduceOp

__all__ = [
    "AllToAllOptions", "AllgatherOptions", "AllreduceCoalescedOptions", "AllreduceOptions", "BarrierOptions", "BroadcastOptions",
    "GatherOptions", "ReduceOptions", "ReduceScatterOptions", "ScatterOptions",
]  # fmt: skip

UNSET_TIMEOUT = timedelta(milliseconds=-1)


SUM = ReduceOp(ReduceOp.SUM)


class _Options:
    """A record with the fields of its slots, those of the bases first."""

    __slots__ = ("asyncOp", "timeout")

    def __init__(self, *, asyncOp: bool = True, timeout: timedelta | None = None):
        self.asyncOp, self.timeout = asyncOp, timeout or UNSET_TIMEOUT

    def _fields(self) -> list[str]:
        slots = [slot for kind in reversed(type(self).__mro__) for slot in getattr(kind, "__slots__", ())]
        return ["timeout", *(slot.lstrip("_") for slot in slots if slot != "timeout")]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)}' for name in self._fields())})"


class _Reducing(_Options):
    """Options with a reduction, read back as a ReduceOp whichever way it was given."""

    __slots__ = ("_reduceOp",)

    def __init__(self, *, reduceOp: Any = SUM, asyncOp: bool = True, timeout: timedelta | None = None):
        self.reduceOp, self.asyncOp, self.timeout = reduceOp, asyncOp, timeout or UNSET_TIMEOUT

    @property
    def reduceOp(self) -> ReduceOp:
        return self._reduceOp

    @reduceOp.setter
    def reduceOp(self, op: Any) -> None:
        if type(op) is not ReduceOp:
            op = SUM if op is ReduceOp.SUM else ReduceOp(op)
        self._reduceOp = op


class _Rooted(_Options):
    """Options with the rank that gives or receives."""

    __slots__ = ("rootRank",)

    def __init__(self, *, rootRank: int = 0, asyncOp: bool = True, timeout: timedelta | None = None):
        self.rootRank, self.asyncOp, self.timeout = rootRank, asyncOp, timeout or UNSET_TIMEOUT


class BroadcastOptions(_Rooted):
    """Of broadcast: who sends, and which of its tensors."""

    __slots__ = ("rootTensor",)

    def __init__(self, *, rootTensor: int = 0, **rest: Any):
        super().__init__(**rest)
        self.rootTensor = rootTensor


class AllreduceOptions(_Reducing):
    """Of all_reduce."""

    __slots__ = ()


class AllreduceCoalescedOptions(_Reducing):
    """Of all_reduce_coalesced."""

    __slots__ = ()


class ReduceOptions(_Reducing):
    """Of reduce: who receives, and in which of its tensors."""

    __slots__ = ("rootRank", "rootTensor")

    def __init__(self, *, rootRank: int = 0, rootTensor: int = 0, **rest: Any):
        super().__init__(**rest)
        self.rootRank, self.rootTensor = rootRank, rootTensor


class AllgatherOptions(_Options):
    """Of all_gather and its relatives."""

    __slots__ = ()


class GatherOptions(_Rooted):
    """Of gather."""

    __slots__ = ()


class ScatterOptions(_Rooted):
    """Of scatter."""

    __slots__ = ()


class ReduceScatterOptions(_Reducing):
    """Of reduce_scatter and its relatives."""

    __slots__ = ()


class AllToAllOptions(_Options):
    """Of all_to_all and its relatives."""

    __slots__ = ()


class BarrierOptions(_Options):
    """Of barrier: on which GPUs, and on which device."""

    __slots__ = ("device", "device_ids")

    def __init__(self, **rest: Any):
        super().__init__(**rest)
        self.device_ids: list[int] = []
        self.device: Any = None


class _DistributedBackendOptions:
    """What the creator of a backend is told that was registered with extended_api: who this process is, where it meets the others."""

    def __init__(self) -> None:
        self.store: Any = None
        self.group_rank = self.group_size = 0
        self.timeout = UNSET_TIMEOUT
        self.group_id = ""
        self.global_ranks_in_group: list[int] = []
