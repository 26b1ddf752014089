"""Coalescing: several small collectives of one kind as one call.

    with _coalescing_manager(async_ops=True) as manager:
        for tensor in tensors:
            all_reduce(tensor)
    manager.wait()

all_reduce, all_gather_into_tensor and reduce_scatter_tensor are collected inside of it, and made when it ends; what else is called runs at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from flambeau.distributed.collectives.world import _group_or_default_group, _world
from flambeau.distributed.groups.work import Work
from flambeau.distributed.options import AllgatherOptions, AllreduceCoalescedOptions, ReduceScatterOptions

if TYPE_CHECKING:
    from flambeau.devices import device
    from flambeau.distributed.groups import ProcessGroup
    from flambeau.tensor import Tensor


class _CoalescingManager:
    """What `wait()`s for the collectives of one `with`."""

    def __init__(self) -> None:
        self.works: list[Work] = []

    def append(self, work: Work | None) -> None:
        """One more to wait for."""
        if work is not None:
            self.works.append(work)

    def wait(self) -> None:
        """Until all of them are done."""
        for work in self.works:
            work.wait()


class _CollOp(NamedTuple):
    """A collective that waits to be made: `op` is the function, `tensor` what it reads, `dst_tensor` what it writes if that is another."""

    op: Callable
    tensor: Tensor
    dst_tensor: Tensor | None = None
    redop: Any = None
    root: int | None = None


class _IllegalWork(Work):
    """What async_op=True gives inside of a manager: nothing has begun yet, so nothing can be asked of it."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            return object.__getattribute__(self, name)
        raise ValueError(
            f"{name}: this collective waits for the end of its _coalescing_manager, which has the works: `with ... as manager`, manager.wait()"
        )


def collects(pg: ProcessGroup) -> bool:
    """Whether calls of this group are being collected."""
    return bool(_world.pg_coalesce_state) and pg in _world.pg_coalesce_state


def collect(pg: ProcessGroup, op: Callable, tensor: Tensor, out: Tensor | None, redop: Any, async_op: bool) -> Any:
    """Put a call aside."""
    _world.pg_coalesce_state[pg].append(_CollOp(op, tensor, out, redop))
    return object.__new__(_IllegalWork) if async_op else None


@contextmanager
def _coalescing_manager(
    group: ProcessGroup | None = None, device: device | None = None, async_ops: bool = False
) -> Iterator[_CoalescingManager]:
    """Make the collectives inside as one. With `async_ops` what it gives waits for them, else leaving the `with` does."""
    pg = _group_or_default_group(group)
    if _world.pg_coalesce_state.get(pg):
        raise ValueError(
            "ProcessGroup has non-empty op list at the start of coalescing: a _coalescing_manager inside another one of the same group"
        )
    backend = pg._get_backend(device) if device is not None and hasattr(pg, "_get_backend") else None
    opens = getattr(backend, "supports_coalescing", False)
    manager = _CoalescingManager()
    _world.pg_coalesce_state[pg] = []
    if opens:
        backend._start_coalescing()
    try:
        yield manager
    finally:
        calls = _world.pg_coalesce_state.pop(pg)
    works = [
        _make(pg, list(alike), async_ops)
        for _, alike in itertools.groupby(calls, key=lambda call: (call.op, call.redop, call.tensor.dtype))
    ]
    if opens:
        works.append(backend._end_coalescing())
    for work in works:
        if async_ops:
            manager.append(work)
        elif work is not None:
            work.wait()


def _make(pg: ProcessGroup, calls: list[_CollOp], asynchronous: bool) -> Work | None:
    """Make calls of one kind."""
    inputs, outputs = [call.tensor for call in calls], [call.dst_tensor for call in calls]
    kind, op = calls[0].op.__name__, calls[0].redop
    if kind == "all_reduce":
        return pg.allreduce_coalesced(inputs, AllreduceCoalescedOptions(reduceOp=op, asyncOp=asynchronous))
    if kind == "all_gather_single":
        return pg.allgather_into_tensor_coalesced(outputs, inputs, AllgatherOptions(asyncOp=asynchronous))
    return pg.reduce_scatter_tensor_coalesced(outputs, inputs, ReduceScatterOptions(reduceOp=op, asyncOp=asynchronous))
