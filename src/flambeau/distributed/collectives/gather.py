"""gather: every rank's tensor, on one rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.distributed.collectives.checks import (
    _check_single_tensor,
    _check_tensor_list,
    _ensure_all_tensors_same_dtype,
    check_alike,
    check_count,
    check_root,
)
from flambeau.distributed.collectives.ranks import _canonicalize_group_rank
from flambeau.distributed.collectives.world import _group_or_default_group, stays_out, waited
from flambeau.distributed.options import GatherOptions

if TYPE_CHECKING:
    from flambeau.distributed.groups import ProcessGroup, Work
    from flambeau.tensor import Tensor

__all__ = ["gather"]


def gather(
    tensor: Tensor,
    gather_list: list[Tensor] | None = None,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Write the tensors of all ranks into `gather_list` of rank `dst` (0 unless given); the others pass no list."""
    _check_single_tensor(tensor, "tensor")
    if gather_list:
        _check_tensor_list(gather_list, "gather_list")
    else:
        gather_list = []
    _ensure_all_tensors_same_dtype(tensor, gather_list)
    if stays_out(group, "gather"):
        return None
    pg = _group_or_default_group(group)
    root = _canonicalize_group_rank(pg, 0 if dst is None and group_dst is None else dst, group_dst)
    _validate_output_list_for_rank(pg.rank(), root, gather_list)
    check_root(pg, root, "gather")
    if gather_list:
        check_count(gather_list, pg, "gather: incorrect output list size", "gather_list")
        check_alike(gather_list, tensor, "gather", "gather_list")
    opts = GatherOptions(rootRank=root, asyncOp=async_op)
    return waited(pg.gather([gather_list] if pg.rank() == root else [], [tensor], opts), async_op)


def _validate_output_list_for_rank(my_rank: int, dst: int, gather_list: list[Any] | None) -> None:
    """ValueError where a list is missing, or there is one that nobody fills."""
    if my_rank == dst and not gather_list:
        raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
    if my_rank != dst and gather_list:
        raise ValueError("Argument ``gather_list`` must NOT be specified on non-destination ranks.")
