"""barrier: nobody goes on before everybody is here. monitored_barrier says who is missing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from flambeau.distributed.collectives.world import _check_valid_timeout, _group_or_default_group, stays_out, waited
from flambeau.distributed.options import BarrierOptions

if TYPE_CHECKING:
    from flambeau.distributed.groups import ProcessGroup, Work

__all__ = ["barrier", "monitored_barrier"]


def barrier(
    group: ProcessGroup | None = None, async_op: bool = False, device_ids: Sequence[int] | None = None, timeout: timedelta | None = None
) -> Work | None:
    """Wait until all ranks have called this. `device_ids` names the GPU with which NCCL waits."""
    if stays_out(group, "barrier"):
        return None
    pg = _group_or_default_group(group)
    opts = BarrierOptions(asyncOp=async_op)
    if device_ids is not None:
        opts.device_ids = [device_ids] if isinstance(device_ids, int) else list(device_ids)
        if not opts.device_ids:
            raise IndexError("barrier: device_ids is empty: leave it out, or name the GPU of this process")
    if timeout is not None:
        _check_valid_timeout(timeout)
        opts.timeout = timeout
    return waited(pg.barrier(opts), async_op)


def monitored_barrier(group: ProcessGroup | None = None, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
    """Wait until all ranks have called this; after `timeout` a RuntimeError names a rank that has not, or with `wait_all_ranks` all of them."""
    if stays_out(group, "monitored_barrier"):
        return None
    pg = _group_or_default_group(group)
    if timeout is not None:
        _check_valid_timeout(timeout)
    if "cpu" not in [device.type for device in pg._device_types]:
        raise ValueError(
            "monitored_barrier is only implemented for GLOO backend: groups that take CPU tensors have it, this one takes none"
        )
    return pg.monitored_barrier(timeout, wait_all_ranks=wait_all_ranks)
