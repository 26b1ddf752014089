"""broadcast: one rank's tensor, on all ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flambeau.distributed.collectives.checks import _check_single_tensor, check_root
from flambeau.distributed.collectives.ranks import _canonicalize_group_rank
from flambeau.distributed.collectives.world import _group_or_default_group, waited
from flambeau.distributed.options import BroadcastOptions

if TYPE_CHECKING:
    from flambeau.distributed.groups import ProcessGroup, Work
    from flambeau.tensor import Tensor

__all__ = ["broadcast"]


def broadcast(
    tensor: Tensor, src: int | None = None, group: ProcessGroup | None = None, async_op: bool = False, group_src: int | None = None
) -> Work | None:
    """Write the tensor of rank `src` (or of number `group_src` in the group) into the tensors of all ranks, which have its shape and dtype."""
    pg = _group_or_default_group(group)
    root = _canonicalize_group_rank(pg, src, group_src)
    _check_single_tensor(tensor, "tensor")
    check_root(pg, root, "broadcast")
    return waited(pg.broadcast([tensor], BroadcastOptions(rootRank=root, asyncOp=async_op)), async_op)
