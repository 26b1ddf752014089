"""all_to_all: every rank has something for every rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flambeau.distributed.collectives.checks import _check_single_tensor, _check_tensor_list, _ensure_all_tensors_same_dtype, check_count
from flambeau.distributed.collectives.world import _group_or_default_group, stays_out, waited
from flambeau.distributed.options import AllToAllOptions

if TYPE_CHECKING:
    from flambeau.distributed.groups import ProcessGroup, Work
    from flambeau.tensor import Tensor

__all__ = ["all_to_all", "all_to_all_single"]


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """Cut `input` along its first dimension, send part n to number n in the group, and put what arrives one behind the other into `output`.

    Parts are equal, or as the split sizes say: input_split_sizes[n] rows go to n, output_split_sizes[n] come from n.
    """
    if stays_out(group, "all_to_all_single"):
        return None
    _check_single_tensor(output, "output")
    _check_single_tensor(input, "input")
    _ensure_all_tensors_same_dtype(output, input)
    pg = _group_or_default_group(group)
    if not input.is_contiguous():
        raise ValueError("all_to_all_single: Tensors must be contiguous, input is not: pass input.contiguous()")
    sends = _splits(input, input_split_sizes, pg.size(), "input")
    receives = _splits(output, output_split_sizes, pg.size(), "output")
    if not sends and not receives and input.numel() != output.numel():
        raise RuntimeError(
            f"all_to_all_single: input has {tuple(input.shape)} and output {tuple(output.shape)}: without split sizes as much comes in as goes out"
        )
    return waited(pg.alltoall_base(output, input, receives, sends, AllToAllOptions(asyncOp=async_op)), async_op)


def _splits(tensor: Tensor, sizes: Sequence[int] | None, ranks: int, which: str) -> list[int]:
    """The split sizes of a tensor. RuntimeError if they do not cut it into one part for each rank."""
    rows = tensor.shape[0] if tensor.dim() else 1
    if not sizes:
        if rows % ranks:
            raise RuntimeError(
                f"all_to_all_single: Tensor's dim 0 does not divide equally across group size: {which} has {rows} rows for {ranks} ranks. "
                f"Pass {which}_split_sizes"
            )
        return []
    found = [int(size) for size in sizes]
    if len(found) != ranks:
        raise RuntimeError(
            f"all_to_all_single: Number of tensor splits not equal to group size: {which}_split_sizes has {len(found)} numbers for {ranks} ranks"
        )
    if sum(found) != rows:
        raise RuntimeError(
            f"all_to_all_single: Split sizes doesn't match total dim 0 size: {which}_split_sizes {found} sum to {sum(found)}, not {rows}"
        )
    return found


def all_to_all(
    output_tensor_list: list[Tensor], input_tensor_list: list[Tensor], group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """Send tensor n of the input list to number n in the group; what comes from number n is written into tensor n of the output list."""
    if stays_out(group, "all_to_all"):
        return None
    _check_tensor_list(output_tensor_list, "output_tensor_list")
    _check_tensor_list(input_tensor_list, "input_tensor_list")
    _ensure_all_tensors_same_dtype(output_tensor_list, input_tensor_list)
    if not input_tensor_list and not output_tensor_list:
        raise NotImplementedError("all_to_all of two empty lists: there were no tensor arguments, pass one tensor for each rank")
    pg = _group_or_default_group(group)
    check_count(input_tensor_list, pg, "all_to_all: input tensor list", "input_tensor_list")
    check_count(output_tensor_list, pg, "all_to_all: output tensor list", "output_tensor_list")
    own, back = input_tensor_list[pg.rank()], output_tensor_list[pg.rank()]
    if own.numel() != back.numel():
        raise RuntimeError(
            f"all_to_all: what a rank keeps must have the same size in both lists: {tuple(own.shape)} and {tuple(back.shape)} at place {pg.rank()}"
        )
    return waited(pg.alltoall(output_tensor_list, input_tensor_list, AllToAllOptions(asyncOp=async_op)), async_op)
