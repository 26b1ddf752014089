"""all_reduce: the tensors of all ranks become one, on all ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.distributed.collectives import coalescing
from flambeau.distributed.collectives.checks import (
    _check_single_tensor,
    _check_tensor_list,
    _ensure_all_tensors_same_dtype,
    check_op,
    refuse_complex,
)
from flambeau.distributed.collectives.deprecations import old
from flambeau.distributed.collectives.world import _group_or_default_group, stays_out, waited
from flambeau.distributed.options import AllreduceCoalescedOptions, AllreduceOptions
from flambeau.distributed.reduce_op import ReduceOp
from flambeau.tensor import Tensor

if TYPE_CHECKING:
    from flambeau.distributed.groups import ProcessGroup, Work

__all__ = ["all_reduce", "all_reduce_coalesced"]


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: ProcessGroup | None = None, async_op: bool = False) -> Work | None:
    """Sum the tensors of all ranks (or AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM) in place: all ranks find the same bits.

    float16 and bfloat16 are summed in float32.
    """
    _check_single_tensor(tensor, "tensor")
    if stays_out(group, "all_reduce"):
        return None
    check_op(op, "all_reduce")
    refuse_complex(tensor, op, "all_reduce")
    pg = _group_or_default_group(group)
    if coalescing.collects(pg):
        return coalescing.collect(pg, all_reduce, tensor, None, op, async_op)
    return waited(pg.allreduce([tensor], AllreduceOptions(reduceOp=op, asyncOp=async_op)), async_op)


@old("torch.distributed.all_reduce_coalesced", "all_reduce")
def all_reduce_coalesced(tensors: Any, op: Any = ReduceOp.SUM, group: ProcessGroup | None = None, async_op: bool = False) -> Any:
    """all_reduce of several tensors of one dtype as one call. With `async_op` a Future of the tensors."""
    if isinstance(tensors, Tensor):
        tensors = [tensors]
    _check_tensor_list(tensors, "tensor")
    _ensure_all_tensors_same_dtype(tensors)
    if stays_out(group, "all_reduce_coalesced"):
        return None
    if not tensors:
        raise NotImplementedError("all_reduce_coalesced of no tensors: there were no tensor arguments, pass at least one")
    check_op(op, "all_reduce_coalesced")
    refuse_complex(tensors[0], op, "all_reduce")
    opts = AllreduceCoalescedOptions(reduceOp=op, asyncOp=async_op)
    work = _group_or_default_group(group).allreduce_coalesced(tensors, opts)
    if async_op:
        return work.get_future()
    work.wait()
    return None
