"""all_reduce of tensors most of whose elements are zero: indices and values travel, and each rank adds up what it receives."""

from __future__ import annotations

from typing import Any

from flambeau import modes
from flambeau.distributed.errors import DistBackendError
from flambeau.distributed.groups.work import Done
from flambeau.distributed.reduce_op import ReduceOp
from flambeau.ops.joining import cat
from flambeau.sparse.making import sparse_coo_tensor
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import tensor, zeros


def all_reduce(group: Any, own: Tensor, op: Any = ReduceOp.SUM) -> Done:
    """Write the sum of all ranks' tensors to `own`. It is there at once, for the lengths that travel have to be known first."""
    if op != ReduceOp.SUM:
        raise RuntimeError(
            f"all_reduce: unsupported reduction operation {op.op.name} (allreduce of sparse tensors only works with ReduceOp.SUM)"
        )
    with modes.no_grad():
        own.copy_(_sum(group, own.coalesce()))
    return Done([own])


def _sum(group: Any, own: Tensor) -> Tensor:
    counts = _counts(group, own)
    if not any(counts):
        return own
    indices, values = own.indices(), own.values()
    return sparse_coo_tensor(_together(group, indices, 1, counts), _together(group, values, 0, counts), own.shape).coalesce()


def _counts(group: Any, own: Tensor) -> list[int]:
    """How many elements each rank has, whose tensors are of one shape."""
    said = _gathered(group, tensor([own._nnz(), own.sparse_dim(), *own.shape], device=own.device))
    shapes = [tuple(one.tolist()[2:]) for one in said]
    if len({tuple(one.tolist()[1:]) for one in said}) > 1:
        raise DistBackendError(f"all_reduce: the sparse tensors of the ranks have other shapes, or other sparse dimensions: {shapes}")
    return [int(one[0]) for one in said]


def _together(group: Any, own: Tensor, dim: int, counts: list[int]) -> Tensor:
    """The parts of all ranks, one behind the other. All send as much as the one that has most."""
    shape = list(own.shape)
    shape[dim] = max(counts)
    padded = zeros(shape, dtype=own.dtype, device=own.device)
    padded.narrow(dim, 0, own.shape[dim]).copy_(own)
    return cat([part.narrow(dim, 0, count) for part, count in zip(_gathered(group, padded), counts, strict=True)], dim)


def _gathered(group: Any, own: Tensor) -> list[Tensor]:
    everyone = [zeros(own.shape, dtype=own.dtype, device=own.device) for _ in range(group.size())]
    group.allgather([everyone], [own]).wait()
    return everyone
