"""scatter: one rank has a tensor for each rank, and each gets its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flambeau.distributed.collectives.checks import (
    _check_single_tensor,
    _check_tensor_list,
    _ensure_all_tensors_same_dtype,
    check_alike,
    check_count,
    check_root,
)
from flambeau.distributed.collectives.ranks import _canonicalize_group_rank
from flambeau.distributed.collectives.world import _group_or_default_group, waited
from flambeau.distributed.options import ScatterOptions

if TYPE_CHECKING:
    from flambeau.distributed.groups import ProcessGroup, Work
    from flambeau.tensor import Tensor

__all__ = ["scatter"]


def scatter(
    tensor: Tensor,
    scatter_list: list[Tensor] | None = None,
    src: int | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Write tensor n of the `scatter_list` of rank `src` (0 unless given) into `tensor` of number n in the group; the others pass no list."""
    _check_single_tensor(tensor, "tensor")
    if scatter_list:
        _check_tensor_list(scatter_list, "scatter_list")
    else:
        scatter_list = []
    _ensure_all_tensors_same_dtype(tensor, scatter_list)
    pg = _group_or_default_group(group)
    root = _canonicalize_group_rank(pg, 0 if src is None and group_src is None else src, group_src)
    if pg.rank() == root:
        if not scatter_list:
            raise ValueError("Argument ``scatter_list`` must be specified on source rank.")
        check_count(scatter_list, pg, "scatter: incorrect input list size", "scatter_list")
        check_alike(scatter_list, tensor, "scatter", "scatter_list")
    elif scatter_list:
        raise ValueError("Argument ``scatter_list`` must NOT be specified on non-source ranks.")
    check_root(pg, root, "scatter")
    opts = ScatterOptions(rootRank=root, asyncOp=async_op)
    return waited(pg.scatter([tensor], [scatter_list] if pg.rank() == root else [], opts), async_op)
