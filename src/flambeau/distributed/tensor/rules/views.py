"""Views: a cut goes with its dimension. Terms stay terms, for views only move elements.

For another shape of the same elements (view, squeeze, unsqueeze), the dimensions of both shapes are matched in groups with as many elements:

    (2, 3, 4) -> (6, 4)      [2, 3] became [6], [4] remained
    flattening a group       a cut through its first dimension cuts the result; one through a later dimension becomes a _StridedShard
    splitting a dimension    a cut through it cuts the first of the new ones, if that is divisible by the ranks
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from flambeau.distributed.tensor._utils import compute_local_shape
from flambeau.distributed.tensor.placement_types import Placement, Shard, _StridedShard
from flambeau.distributed.tensor.rules import rule
from flambeau.distributed.tensor.ways import Question, Way, cuts, moved

# -- another shape -------------------------------------------------------------------------------------------------------------


def _reshaped(call: Any, pieces: list, found: Any) -> Any:
    return pieces[0].reshape(compute_local_shape(found.metas[0].shape, call.mesh, found.results[0]))


@rule("_view", "_unsafe_view", "unsqueeze", "_squeeze0", "_squeeze1", "_squeeze2", "_squeeze4", run=_reshaped)
def another_shape(question: Question) -> list[Way]:
    """The same elements in another shape."""
    now = question.now[0]
    if not now.is_shard():
        return [question.everywhere(now)]
    to = carried_over(question, now)
    if to is None:
        shapes = f"{list(question.shapes[0])} to {list(question.results[0] or ())}"
        raise RuntimeError(
            f"view: a tensor placed {now} over {question.ranks} ranks cannot be seen in another shape without moving elements ({shapes}). Only the first "
            "dimension of those that are joined, or split, can be cut, and the ranks have to divide it. Please redistribute the tensor before this operation"
        )
    return [Way((now,), (to,))]


def carried_over(question: Question, now: Any) -> Placement | None:
    """A cut of one shape as a cut of the other."""
    old, new = question.shapes[0], question.results[0]
    pieces = question.call.tensors[0]._spec.num_shards_map[now.dim]
    for before, after in groups(old, new or ()):
        if now.dim in before:
            return _in_group(now, pieces, old, new or (), before, after)
    return None  # a dimension of size 1, which is in no group


def _in_group(now: Any, pieces: int, old: Sequence[int], new: Sequence[int], before: list[int], after: list[int]) -> Placement | None:
    if len(before) == len(after) == 1:
        return moved(now, after[0])
    if isinstance(now, _StridedShard):
        return _unflattened(now, pieces, new, before, after)
    at = before.index(now.dim)
    if at and len(after) == 1:
        return _StridedShard(after[0], split_factor=prod(old[d] for d in before[:at]))
    if old[now.dim] % pieces:
        return None
    if at == 0 and new[after[0]] % pieces == 0:
        return Shard(after[0])
    # (a, b, c) -> (a * b1, b2, ...): followed only where everything before the cut is one dimension, or the same ones, of the other shape
    lead, seen = prod(old[d] for d in before[:at]), 1
    for d in after:
        if seen == lead and new[d] % pieces == 0:
            return Shard(d)
        seen *= new[d]
    return None


def _unflattened(now: _StridedShard, pieces: int, new: Sequence[int], before: list[int], after: list[int]) -> Placement | None:
    """Back to what it was before it was flattened."""
    seen = 1
    for d in after:
        if len(before) == 1 and seen == now.split_factor and new[d] % pieces == 0:
            return Shard(d)
        seen *= new[d]
    return None


def groups(old: Sequence[int], new: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Dimensions of both shapes that have the same elements, as few at a time as can be. Those of size 1 are in no group."""
    left, right = ([d for d, n in enumerate(shape) if n != 1] for shape in (old, new))
    i = j = 0
    while i < len(left) and j < len(right):
        before, after = [left[i]], [right[j]]
        a, b = old[left[i]], new[right[j]]
        while a != b:
            if (a < b and i + 1 < len(left)) or j + 1 >= len(right):
                i += 1
                if i >= len(left):
                    return
                before.append(left[i])
                a *= old[left[i]]
            else:
                j += 1
                after.append(right[j])
                b *= new[right[j]]
        yield before, after
        i, j = i + 1, j + 1


# -- dimensions in another order -----------------------------------------------------------------------------------------------


@rule("transpose", "_permute", "_t")
def reordered(question: Question) -> list[Way]:
    """Dimensions exchanged."""
    now, rank = question.now[0], len(question.shapes[0])
    return [Way((now,), (moved(now, order(question, rank).index(now.dim)) if now.is_shard() else now,))]  # type: ignore[attr-defined]


def order(question: Question, rank: int) -> list[int]:
    """For each dimension of the result, which of the input it was."""
    found = list(range(rank))
    if question.call.name == "_permute":
        return [d % rank for d in question.argument("dims")]
    a, b = (question.argument("dim0") % rank, question.argument("dim1") % rank) if question.call.name == "transpose" else (0, rank - 1)
    if rank:
        found[a], found[b] = found[b], found[a]
    return found


# -- parts ---------------------------------------------------------------------------------------------------------------------


@rule("_select", "_unbind")
def one_slice(question: Question) -> list[Way]:
    """A dimension disappears: it has to be whole, the others may be cut."""
    return without(question, question.argument("dim"), gone=True)


@rule("_slice", "_split", "_split_with_sizes", "_flip", "_roll")
def along(question: Question) -> list[Way]:
    """Pieces of a dimension: it has to be whole, unless all of it is asked for."""
    name, shape = question.call.name, question.shapes[0]
    if name == "_slice" and question.results[0] == shape and question.argument("step") in (1, None):
        return [question.everywhere(question.now[0])]
    dims = question.argument("dims" if name in ("_flip", "_roll") else "dim")
    if name == "_roll" and not dims:
        dims = tuple(range(len(shape)))
    return without(question, *(dims if isinstance(dims, (tuple, list)) else (dims,)))


def without(question: Question, *dims: int, gone: bool = False) -> list[Way]:
    """Cuts through other dimensions than these; `gone`: they are not there in the result."""
    now, rank = question.now[0], len(question.shapes[0])
    fixed = {d % rank for d in dims} if rank else set()
    if now.is_partial():
        return [question.everywhere(now), question.replicated()]
    ways = []
    for p in cuts([now]):
        if p.dim not in fixed:
            to = moved(p, p.dim - sum(d < p.dim for d in fixed)) if gone else p
            ways.append(Way((p,), (to,) * len(question.results)))
    return [*ways, question.replicated()]


def _expanded(call: Any, pieces: list, found: Any) -> Any:
    return pieces[0].expand(compute_local_shape(found.metas[0].shape, call.mesh, found.results[0]))


@rule("_expand", run=_expanded)
def expanded(question: Question) -> list[Way]:
    """New dimensions in front, and others stretched."""
    now, shape, to = question.now[0], question.shapes[0], question.results[0] or ()
    if now.is_shard() and shape[now.dim] != to[now.dim + len(to) - len(shape)]:  # type: ignore[attr-defined]
        return [question.replicated()]
    return [Way((now,), (moved(now, now.dim + len(to) - len(shape)) if now.is_shard() else now,))]  # type: ignore[attr-defined]


@rule("_view_as_real", "_view_as_complex")
def complex_parts(question: Question) -> list[Way]:
    """A last dimension of size 2 that comes or goes."""
    return [question.everywhere(question.now[0])] if not question.now[0].is_shard(len(question.shapes[0]) - 1) else [question.replicated()]


@rule("diagonal")
def diagonal(question: Question) -> list[Way]:
    """Two dimensions become one, the last: both have to be whole."""
    rank = len(question.shapes[0])
    return without(question, question.argument("dim1") % rank, question.argument("dim2") % rank, gone=True)


@rule("unfold")
def windows(question: Question) -> list[Way]:
    """All windows along a dimension, which has to be whole."""
    return without(question, question.argument("dimension"))
