"""reduce: the tensors of all ranks become one, on one rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.distributed.collectives.checks import _check_single_tensor, check_op, check_root, refuse_complex
from flambeau.distributed.collectives.ranks import _canonicalize_group_rank
from flambeau.distributed.collectives.world import _group_or_default_group, stays_out, waited
from flambeau.distributed.options import ReduceOptions
from flambeau.distributed.reduce_op import ReduceOp

if TYPE_CHECKING:
    from flambeau.distributed.groups import ProcessGroup, Work
    from flambeau.tensor import Tensor

__all__ = ["reduce"]


def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: Any = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Sum the tensors of all ranks (or another `op`) into that of rank `dst` (or of number `group_dst` in the group)."""
    pg = _group_or_default_group(group)
    root = _canonicalize_group_rank(pg, dst, group_dst)
    _check_single_tensor(tensor, "tensor")
    if stays_out(group, "reduce"):
        return None
    check_op(op, "reduce")
    check_root(pg, root, "reduce")
    refuse_complex(tensor, op, "reduce", RuntimeError)
    return waited(pg.reduce([tensor], ReduceOptions(reduceOp=op, rootRank=root, asyncOp=async_op)), async_op)
