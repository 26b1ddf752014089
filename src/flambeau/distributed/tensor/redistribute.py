"""From one placement to another: which steps it takes (`plan`), and what each does on this rank (`converted`).

    Replicate -> Shard     cut: nothing is sent
    Shard     -> Replicate all-gather
    Shard(a)  -> Shard(b)  all-to-all
    Partial   -> Replicate all-reduce
    Partial   -> Shard     reduce-scatter
    Replicate -> Partial   each takes its share of it (of integers, the first rank takes all): nothing is sent
    Shard     -> Partial   zeros around the piece: nothing is sent

Two mesh dimensions may cut the same dimension of a tensor, and then the first has cut first. So an inner cut has to be undone before an outer one
can change, and is made again afterwards. Nothing here knows of history: see `Redistribute` in sharded.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.distributed.device_mesh import DeviceMesh
from flambeau.distributed.tensor import exchange
from flambeau.distributed.tensor._utils import local_shape_and_offset, rows_of
from flambeau.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard, _NormPartial, _StridedShard
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import tensor as tensor_of
from flambeau.tensor.making.factories import zeros

Step = tuple[int, Placement, Placement]  # mesh dimension, from, to
_CUTS = (Shard, _StridedShard)


def plan(source: Sequence[Placement], target: Sequence[Placement]) -> list[Step]:
    """The steps from one list of placements to another: first inner cuts that stand in the way are undone, then the outer ones change first."""
    now: list[Placement] = list(source)
    steps: list[Step] = []
    changing = {i for i, (a, b) in enumerate(zip(source, target, strict=True)) if a != b}
    touched: dict[int, set[int]] = {i: {p.dim for p in (source[i], target[i]) if isinstance(p, _CUTS)} for i in changing}
    for j, placement in enumerate(now):  # outer ones first: what is undone here is touched, too
        if isinstance(placement, _CUTS) and any(placement.dim in dims for i, dims in touched.items() if i < j):
            touched[j] = touched.get(j, set()) | {placement.dim}
            changing.add(j)
    undone = {j for j in changing if isinstance(now[j], _CUTS) and any(now[j].dim in touched[i] for i in changing if i < j)}
    for j in sorted(undone, reverse=True):
        steps.append((j, now[j], Replicate()))
        now[j] = Replicate()
    for i in sorted(changing):
        if now[i] != target[i]:
            steps.append((i, now[i], target[i]))
    return steps


def converted(local: Tensor, mesh: DeviceMesh, shape: Sequence[int], source: Sequence[Placement], target: Sequence[Placement]) -> Tensor:
    """This rank's part of a tensor of `shape`, placed as `target` says; `local` is its part as `source` says."""
    coordinate = mesh.get_coordinate()
    now = list(source)
    for i, before, after in plan(source, target):
        if coordinate is not None:
            outer = local_shape_and_offset(shape, mesh.shape[:i], coordinate[:i], now[:i])[0]
            local = _step(local, mesh, i, coordinate[i], outer, before, after)
        now[i] = after
    return local


def _step(local: Tensor, mesh: DeviceMesh, i: int, at: int, outer: Sequence[int], before: Placement, after: Placement) -> Tensor:
    """One step along mesh dimension i, where this rank is number `at`; `outer` is the shape of what the ranks along it have together."""
    n = mesh.size(i)
    if isinstance(before, Partial):
        if isinstance(after, Shard):
            return _reduced_and_cut(local, mesh, i, at, outer, before, after.dim)
        whole = _reduced(local, mesh, i, before)
    elif isinstance(before, _CUTS):
        if type(before) is Shard and type(after) is Shard:
            return _exchanged(local, mesh, i, at, outer, before.dim, after.dim)
        if type(before) is Shard and after == Partial("sum"):
            size, first = Shard.local_shard_size_and_offset(outer[before.dim], n, at)
            around = zeros(
                (*local.shape[: before.dim], outer[before.dim], *local.shape[before.dim + 1 :]), dtype=local.dtype, device=local.device
            )
            around.narrow(before.dim, first, size).copy_(local)
            return around
        whole = _gathered(local, mesh, i, outer, before)
    else:
        whole = local
    if isinstance(after, _CUTS):
        return cut(whole, after, n, at)
    if isinstance(after, Partial):
        return _started(whole, after, n, at)
    return whole


def cut(whole: Tensor, placement: Any, n: int, at: int) -> Tensor:
    """The piece of rank `at` of n, in memory of its own."""
    rows = rows_of(placement, whole.shape[placement.dim], n, at)
    if isinstance(rows, range):
        return whole.narrow(placement.dim, min(rows.start, whole.shape[placement.dim]), len(rows)).clone().contiguous()
    return whole.index_select(placement.dim, tensor_of(rows, device=whole.device).long())


def _started(whole: Tensor, partial: Partial, n: int, at: int) -> Tensor:
    """Something that gives `whole` once it is reduced over the ranks."""
    if isinstance(partial, _NormPartial):
        if partial.reduce_op == "sum":
            return whole if at == 0 else zeros(whole.shape, dtype=whole.dtype, device=whole.device)
        return whole
    if partial.reduce_op == "sum":
        if whole.is_floating_point() or whole.is_complex():
            return whole.div(n)
        return whole if at == 0 else zeros(whole.shape, dtype=whole.dtype, device=whole.device)
    if partial.reduce_op in ("avg", "max", "min", "band", "bor"):
        return whole
    raise NotImplementedError(f"Replicate -> {partial!r}: there is no way to begin it. Keep the tensor replicated")


def _reduced(local: Tensor, mesh: DeviceMesh, i: int, partial: Partial) -> Tensor:
    if mesh.size(i) == 1:
        return local
    if isinstance(partial, _NormPartial) and partial.reduce_op == "sum":
        p = partial.norm_type
        if p == 0:
            return exchange.all_reduce(local, mesh, i, "sum")
        return exchange.all_reduce(local.abs() ** p, mesh, i, "sum") ** (1.0 / p)
    return exchange.all_reduce(local, mesh, i, partial.reduce_op)


def _reduced_and_cut(local: Tensor, mesh: DeviceMesh, i: int, at: int, outer: Sequence[int], partial: Partial, dim: int) -> Tensor:
    if isinstance(partial, _NormPartial) or partial.reduce_op not in ("sum", "avg", "max", "min", "product"):
        return cut(_reduced(local, mesh, i, partial), Shard(dim), mesh.size(i), at)
    pieces, lacking = Shard(dim)._split_tensor(local, mesh.size(i))
    own = exchange.reduce_scatter(pieces, mesh, i, partial.reduce_op)
    return own.narrow(dim, 0, own.shape[dim] - lacking[at]).contiguous() if lacking[at] else own


def _gathered(local: Tensor, mesh: DeviceMesh, i: int, outer: Sequence[int], placement: Any) -> Tensor:
    """All pieces, put together."""
    n, dim = mesh.size(i), placement.dim
    rows = [rows_of(placement, outer[dim], n, k) for k in range(n)]
    pieces = exchange.all_gather(local, mesh, i, dim, [len(r) for r in rows])
    whole = _cat(pieces, dim)
    if type(placement) is Shard:
        return whole
    order = [row for own in rows for row in own]
    places = sorted(range(len(order)), key=order.__getitem__)
    return whole.index_select(dim, tensor_of(places, device=local.device).long())


def _exchanged(local: Tensor, mesh: DeviceMesh, i: int, at: int, outer: Sequence[int], a: int, b: int) -> Tensor:
    """Pieces of dimension a become pieces of dimension b."""
    if a == b:
        return local
    n = mesh.size(i)
    sent = Shard(b)._split_tensor(local, n, with_padding=False)[0]
    own_columns = sent[at].shape[b]
    shapes = []
    for k in range(n):
        shape = list(local.shape)
        shape[a], shape[b] = Shard.local_shard_size_and_offset(outer[a], n, k)[0], own_columns
        shapes.append(tuple(shape))
    return _cat(exchange.all_to_all(sent, shapes, mesh, i), a)


def _cat(pieces: list[Tensor], dim: int) -> Tensor:
    from flambeau.ops import OPS

    return pieces[0] if len(pieces) == 1 else OPS["cat"](pieces, dim)
