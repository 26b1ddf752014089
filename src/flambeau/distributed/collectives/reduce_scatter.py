"""reduce_scatter: every rank has a tensor for each rank; those for one rank become one, on that rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.distributed.collectives import coalescing
from flambeau.distributed.collectives.all_gather import check_sizes
from flambeau.distributed.collectives.checks import (
    _check_single_tensor,
    _check_tensor_list,
    _ensure_all_tensors_same_dtype,
    check_alike,
    check_count,
    check_op,
    refuse_complex,
)
from flambeau.distributed.collectives.deprecations import renamed
from flambeau.distributed.collectives.world import _group_or_default_group, stays_out, waited
from flambeau.distributed.options import ReduceScatterOptions
from flambeau.distributed.reduce_op import ReduceOp

if TYPE_CHECKING:
    from flambeau.distributed.groups import ProcessGroup, Work
    from flambeau.tensor import Tensor

__all__ = ["reduce_scatter", "reduce_scatter_single", "reduce_scatter_tensor"]


def reduce_scatter(
    output: Tensor, input_list: list[Tensor], op: Any = ReduceOp.SUM, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """Sum tensor n of the `input_list` of all ranks (or another `op`) into `output` of number n in the group."""
    _check_single_tensor(output, "output")
    _check_tensor_list(input_list, "input_list")
    _ensure_all_tensors_same_dtype(output, input_list)
    if stays_out(group, "reduce_scatter"):
        return None
    check_op(op, "reduce_scatter")
    pg = _group_or_default_group(group)
    check_count(input_list, pg, "reduce_scatter: invalid input tensor list size, must be world size", "input_list")
    check_alike(input_list, output, "reduce_scatter", "input_list")
    refuse_complex(output, op, "reduce_scatter", RuntimeError)
    opts = ReduceScatterOptions(reduceOp=op, asyncOp=async_op)
    return waited(pg.reduce_scatter([output], [input_list], opts), async_op)


def reduce_scatter_single(
    output: Tensor, input: Tensor, op: Any = ReduceOp.SUM, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """Sum the tensors of all ranks (or another `op`), and give each rank its part of the result.

    Shape:
        input   (size * N, *), or (size, N, *)
        output  (N, *)
    """
    _check_single_tensor(output, "output")
    _check_single_tensor(input, "input")
    if stays_out(group, "reduce_scatter_single"):
        return None
    check_op(op, "reduce_scatter_single")
    pg = _group_or_default_group(group)
    check_sizes(input, output, pg.size(), "reduce_scatter_single", "input", "output")
    refuse_complex(input, op, "reduce_scatter_single", RuntimeError)
    if coalescing.collects(pg):
        return coalescing.collect(pg, reduce_scatter_single, input, output, op, async_op)
    opts = ReduceScatterOptions(reduceOp=op, asyncOp=async_op)
    return waited(pg._reduce_scatter_base(output, input, opts), async_op)


reduce_scatter_tensor = renamed(reduce_scatter_single, "reduce_scatter_tensor")
_reduce_scatter_base = renamed(reduce_scatter_single, "_reduce_scatter_base")
