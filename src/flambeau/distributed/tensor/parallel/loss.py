"""loss_parallel: cross entropy of logits whose classes are cut over ranks, without gathering them.

    loss_i = log(sum_c exp(x_ic - m_i)) - (x_it - m_i)        m_i the maximum of row i, t its target

The maximum and the sum are reduced over ranks, one number for each row; x_it is read on the rank that has class t. Everything that is as large as the
logits stays where it is, the gradient, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from flambeau.distributed.device_mesh import DeviceMesh
from flambeau.distributed.tensor import sharded
from flambeau.distributed.tensor._api import DTensor
from flambeau.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from flambeau.distributed.tensor._utils import local_shape_and_offset
from flambeau.distributed.tensor.pieces import meta_of
from flambeau.distributed.tensor.placement_types import Partial, Replicate, Shard
from flambeau.tensor import Size, Tensor

_active = [0]


@contextlib.contextmanager
def loss_parallel() -> Iterator[None]:
    """Within it, `F.cross_entropy` of a DTensor whose classes are cut (Shard(1), or Shard(-1) of rows) does not gather them; targets may be plain."""
    _active[0] += 1
    try:
        yield
    finally:
        _active[0] -= 1


def active() -> bool:
    """Whether this is within `loss_parallel()`."""
    return _active[0] > 0


def cross_entropy(input: Any, target: Any, weight: Any, ignore_index: int, reduction: str, smoothing: float) -> Any:
    """The loss of logits (N, C, *) of which C is cut along one mesh dimension."""
    dim = 1 if input.dim() > 1 else 0
    along = [i for i, p in enumerate(input.placements) if p.is_shard(dim)]
    if len(along) != 1:
        raise ValueError(
            f"loss_parallel() requires exactly one mesh dim to shard tensor dimension {dim}, but got placements {input.placements} with {len(along)} such "
            "mesh dim(s)."
        )
    mesh, classes = input.device_mesh, input.shape[dim]
    target = _beside(target, input, dim)
    largest = input.detach().amax(dim, keepdim=True)
    shifted = input - sharded.redistributed(largest, _whole(largest.placements))
    total = shifted.exp().sum(dim)
    log_total = sharded.redistributed(total, _whole(total.placements)).log()
    counted = target != ignore_index
    there = target.masked_fill(~counted, 0)
    losses = log_total - _picked(shifted, there, dim, mesh, along[0])
    share = counted.to(input.dtype)
    if weight is not None:
        weight = weight if isinstance(weight, DTensor) else _replicated(weight, mesh)
        share = share * weight[there]
    loss = losses * share
    if smoothing:
        loss = loss * (1 - smoothing) + _evenly(shifted, log_total, dim, weight, counted, classes) * (smoothing / classes)
    if reduction == "none":
        return loss
    return loss.sum() if reduction == "sum" else loss.sum() / share.sum()


def _evenly(shifted: Any, log_total: Any, dim: int, weight: Any, counted: Any, classes: int) -> Any:
    """-sum over the classes of (their weights times) the logarithms of their probabilities, for samples that count."""
    if weight is None:
        every, times = shifted.sum(dim), float(classes)
    else:
        every, times = (shifted * weight.view(-1, *(1,) * (shifted.dim() - 1 - dim))).sum(dim), weight.sum()
    every = sharded.redistributed(every, _whole(every.placements))
    return (log_total * times - every) * counted.to(every.dtype)


def _whole(placements: tuple) -> tuple:
    """The same, reduced."""
    return tuple(Replicate() if p.is_partial() else p for p in placements)


def _replicated(x: Tensor, mesh: DeviceMesh) -> DTensor:
    return sharded.from_local(x, DTensorSpec(mesh, (Replicate(),) * mesh.ndim, meta_of(x)))


def _beside(target: Any, input: Any, dim: int) -> DTensor:
    """Targets placed as the samples of the logits are."""
    target = target if isinstance(target, DTensor) else _replicated(target, input.device_mesh)
    return sharded.redistributed(target, tuple(_of_target(p, dim) for p in input.placements))


def _of_target(placement: Any, dim: int) -> Any:
    if not placement.is_shard() or placement.dim == dim:
        return Replicate()
    return Shard(placement.dim - (placement.dim > dim))


def _picked(logits: DTensor, target: DTensor, dim: int, mesh: DeviceMesh, along: int) -> DTensor:
    """logits[i, target[i]], on the ranks that have that class; zeros on the others, so that they add up."""
    _, offsets = local_shape_and_offset(logits.shape, mesh.shape, mesh.get_coordinate(), logits.placements)
    first = offsets[dim]

    def pick(pieces: list[Tensor]) -> list[Tensor]:
        rows, classes = pieces
        n = rows.shape[dim]
        if not n:  # no class is here
            return [rows.sum(dim)]
        own = (classes >= first) & (classes < first + n)
        at = (classes - first).masked_fill(~own, 0).unsqueeze(dim)
        return [rows.gather(dim, at).squeeze(dim).masked_fill(~own, 0)]

    placements = tuple(Partial("sum") if i == along else p for i, p in enumerate(target.placements))
    meta = TensorMeta(Size(target.shape), tuple(target.stride()), logits.dtype)
    (found,) = sharded.carried_out("NllLossBackward0", pick, [logits, target], [(placements, meta)])
    return sharded.redistributed(found, _whole(placements))
