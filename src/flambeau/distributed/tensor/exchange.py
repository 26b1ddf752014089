"""Collectives along one dimension of a mesh, on plain tensors: the only place of this room where something is sent.

A mesh dimension of one rank sends nothing. `watchers` are told of every collective (`debug.CommDebugMode` is one).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from flambeau import distributed as dist
from flambeau.distributed import ReduceOp
from flambeau.distributed.device_mesh import DeviceMesh
from flambeau.distributed.tensor.placement_types import padded
from flambeau.dtypes import bool as boolean
from flambeau.dtypes import int32
from flambeau.interpreters.by_name import DisableTorchFunction
from flambeau.ops import OPS
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import empty

watchers: list[Callable[[str], Any]] = []


def _noted(name: str) -> None:
    for watcher in watchers:
        watcher(name)


def _op(name: str) -> Any:
    return getattr(ReduceOp, name.upper())


def all_reduce(local: Tensor, mesh: DeviceMesh, dim: int, op: str) -> Tensor:
    """What all ranks have, reduced: a new tensor."""
    if mesh.size(dim) == 1:
        return local
    _noted("all_reduce")
    with DisableTorchFunction():
        given = local.detach()
        own = given.to(_wide(given)).contiguous()
        own = own.clone() if own.data_ptr() == given.data_ptr() or own is given else own
        if op == "avg":
            dist.all_reduce(own, op=_op("sum"), group=mesh.get_group(dim))
            own = own.div(mesh.size(dim))
        else:
            dist.all_reduce(own, op=_op(op), group=mesh.get_group(dim))
        return own.to(local.dtype)


def _wide(tensor: Tensor) -> Any:
    """The dtype to reduce in: bools are counted, not joined."""
    return int32 if tensor.dtype is boolean else tensor.dtype


def reduce_scatter(pieces: list[Tensor], mesh: DeviceMesh, dim: int, op: str) -> Tensor:
    """This rank's piece, reduced over all ranks; the pieces, one for each rank, have equal shapes."""
    if mesh.size(dim) == 1:
        return pieces[0]
    _noted("reduce_scatter_tensor")
    with DisableTorchFunction():
        joined = OPS["stack"]([piece.detach() for piece in pieces]).contiguous()
        joined = joined.to(_wide(joined))
        own = empty(pieces[0].shape, dtype=joined.dtype, device=joined.device)
        dist.reduce_scatter_single(
            own,
            joined.view(-1, *pieces[0].shape[1:]) if own.dim() else joined,
            op=_op("sum" if op == "avg" else op),
            group=mesh.get_group(dim),
        )
        if op == "avg":
            own = own.div(mesh.size(dim))
        return own.to(pieces[0].dtype)


def all_gather(local: Tensor, mesh: DeviceMesh, mesh_dim: int, dim: int, sizes: Sequence[int]) -> list[Tensor]:
    """Every rank's piece; `sizes` are those of dimension `dim` by rank, by which alone they differ."""
    if mesh.size(mesh_dim) == 1:
        return [local]
    _noted("all_gather_into_tensor")
    with DisableTorchFunction():
        longest = max(sizes)
        own = padded(local.detach(), dim, longest - local.shape[dim]).contiguous()
        all_of_them = empty((len(sizes) * own.shape[0], *own.shape[1:]), dtype=own.dtype, device=own.device)
        dist.all_gather_single(all_of_them, own, group=mesh.get_group(mesh_dim))
        if dim == 0 and min(sizes) == longest:
            return [all_of_them]
        return [
            piece.narrow(dim, 0, size)
            for piece, size in zip(all_of_them.chunk(len(sizes)) if own.shape[0] else [own] * len(sizes), sizes, strict=True)
        ]


def all_to_all(sent: list[Tensor], shapes: Sequence[tuple[int, ...]], mesh: DeviceMesh, dim: int) -> list[Tensor]:
    """What every rank sends this one, whose shapes are known, for a tensor sent to each."""
    if mesh.size(dim) == 1:
        return sent
    _noted("all_to_all_single")
    with DisableTorchFunction():
        flat = OPS["cat"]([piece.detach().reshape(-1) for piece in sent])
        counts = [prod(shape) for shape in shapes]
        found = empty((sum(counts),), dtype=flat.dtype, device=flat.device)
        dist.all_to_all_single(found, flat, counts, [piece.numel() for piece in sent], group=mesh.get_group(dim))
        return [piece.view(shape) for piece, shape in zip(found.split(counts), shapes, strict=True)]


def broadcast(local: Tensor, mesh: DeviceMesh, dim: int, source: int = 0) -> Tensor:
    """What rank `source` along this dimension has: a new tensor."""
    if mesh.size(dim) == 1:
        return local.detach().clone()
    _noted("broadcast")
    with DisableTorchFunction():
        own = local.detach().clone().contiguous()
        dist.broadcast(own, group=mesh.get_group(dim), group_src=source)
        return own


def scatter(pieces: list[Tensor] | None, own: Tensor, mesh: DeviceMesh, dim: int, source: int = 0) -> Tensor:
    """The piece that rank `source` along this dimension sends this one, written to `own`."""
    if mesh.size(dim) == 1 and pieces is not None:
        return own.copy_(pieces[0])
    _noted("scatter")
    with DisableTorchFunction():
        dist.scatter(
            own,
            [piece.detach().contiguous() for piece in pieces] if pieces is not None else None,
            group=mesh.get_group(dim),
            group_src=source,
        )
        return own
