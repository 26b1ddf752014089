"""all_gather: every rank's tensor, on all ranks: as a list, or one behind the other in one tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.distributed.collectives import coalescing
from flambeau.distributed.collectives.checks import (
    _check_single_tensor,
    _check_tensor_list,
    _ensure_all_tensors_same_dtype,
    check_alike,
    check_count,
    check_dense,
)
from flambeau.distributed.collectives.deprecations import old, renamed
from flambeau.distributed.collectives.world import _group_or_default_group, stays_out, waited
from flambeau.distributed.options import AllgatherOptions

if TYPE_CHECKING:
    from flambeau.distributed.groups import ProcessGroup, Work
    from flambeau.tensor import Tensor

__all__ = ["all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_single"]


def all_gather(tensor_list: list[Tensor], tensor: Tensor, group: ProcessGroup | None = None, async_op: bool = False) -> Work | None:
    """Write the tensors of all ranks into `tensor_list`, that of number n in the group at place n. All have one shape and dtype."""
    _check_tensor_list(tensor_list, "tensor_list")
    _check_single_tensor(tensor, "tensor")
    _ensure_all_tensors_same_dtype(tensor_list, tensor)
    if stays_out(group, "all_gather"):
        return None
    pg = _group_or_default_group(group)
    check_dense(tensor, "all_gather")
    check_count(tensor_list, pg, "all_gather", "tensor_list")
    if not _is_uneven(tensor_list):
        check_alike(tensor_list, tensor, "all_gather", "tensor_list")
    return waited(pg.allgather([tensor_list], [tensor], AllgatherOptions(asyncOp=async_op)), async_op)


def _is_uneven(tensors: list[Tensor]) -> bool:
    """Whether the ranks bring tensors of several shapes, which NCCL's all_gather takes and programs use."""
    return tensors[0].is_cuda and any(tensor.shape != tensors[0].shape for tensor in tensors)


def all_gather_single(
    output_tensor: Tensor, input_tensor: Tensor, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """Write the tensors of all ranks into one: behind each other, or stacked.

    Shape:
        input   (N, *)
        output  (size * N, *), or (size, N, *)
    """
    _check_single_tensor(input_tensor, "input_tensor")
    _check_single_tensor(output_tensor, "output_tensor")
    if stays_out(group, "all_gather_single"):
        return None
    pg = _group_or_default_group(group)
    check_sizes(output_tensor, input_tensor, pg.size(), "all_gather_single", "output_tensor", "input_tensor")
    if coalescing.collects(pg):
        return coalescing.collect(pg, all_gather_single, input_tensor, output_tensor, None, async_op)
    return waited(pg._allgather_base(output_tensor, input_tensor, AllgatherOptions(asyncOp=async_op)), async_op)


def check_sizes(whole: Tensor, part: Tensor, ranks: int, function: str, name_of_whole: str, name_of_part: str) -> None:
    """RuntimeError unless `whole` is `ranks` parts, along the first dimension or along a new one in front of it."""
    if whole.dtype != part.dtype:
        raise RuntimeError(
            f"{function}: {name_of_whole} has dtype {whole.dtype}, {name_of_part} has {part.dtype}: invalid tensor type, both must be equal"
        )
    large, small = tuple(whole.shape), tuple(part.shape)
    if large == (ranks * small[0], *small[1:]) if small else large == (ranks,):
        return
    if large == (ranks, *small) or (len(large) == 1 and whole.numel() == ranks * part.numel()):
        return
    expected = f"{(ranks * small[0], *small[1:])} or {(ranks, *small)}" if small else f"{(ranks,)}"
    raise RuntimeError(
        f"{function}: invalid tensor size: {name_of_part} is {small} and there are {ranks} ranks, so {name_of_whole} must be {expected}, not {large}"
    )


all_gather_into_tensor = renamed(all_gather_single, "all_gather_into_tensor")
_all_gather_base = renamed(all_gather_single, "_all_gather_base")


@old("torch.distributed.all_gather_coalesced", "all_gather")
def all_gather_coalesced(
    output_tensor_lists: list[list[Tensor]], input_tensor_list: list[Tensor], group: ProcessGroup | None = None, async_op: bool = False
) -> Any:
    """all_gather of several tensors: output_tensor_lists[n][i] becomes tensor i of number n in the group. With `async_op` a Future of them."""
    if stays_out(group, "all_gather_coalesced"):
        return None
    _check_tensor_list(input_tensor_list, "input_tensor_list")
    _ensure_all_tensors_same_dtype(input_tensor_list)
    if not isinstance(output_tensor_lists, list):
        raise TypeError(
            f"Invalid function argument. Expected parameter `output_tensor_lists` of type List[List[torch.Tensor]], got {output_tensor_lists!r}"
        )
    for row in output_tensor_lists:
        _check_tensor_list(row, "output_tensor_lists")
        _ensure_all_tensors_same_dtype(row)
    pg = _group_or_default_group(group)
    check_count(output_tensor_lists, pg, "all_gather_coalesced: output lists should be equal to world size", "output_tensor_lists")
    for row in output_tensor_lists:
        if len(row) != len(input_tensor_list):
            raise RuntimeError(f"all_gather_coalesced: {len(input_tensor_list)} input tensors, but an output list of {len(row)}")
        for out, given in zip(row, input_tensor_list, strict=True):
            check_alike([out], given, "all_gather_coalesced", "output_tensor_lists")
    work = pg.allgather_coalesced(output_tensor_lists, input_tensor_list, AllgatherOptions(asyncOp=async_op))
    if async_op:
        return work.get_future()
    work.wait()
    return None
