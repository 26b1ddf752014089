"""Rows of a table, elements at indices: the table whole and the indices cut, or the other way round.

A table that is cut by rows (an embedding of a large vocabulary) gives terms: each rank looks up the indices that are its own, and has zeros for the rest.
"""

from __future__ import annotations

from typing import Any

from flambeau.distributed.tensor._utils import local_shape_and_offset
from flambeau.distributed.tensor.placement_types import Shard
from flambeau.distributed.tensor.rules import rule
from flambeau.distributed.tensor.rules.rows import across
from flambeau.distributed.tensor.ways import SUM, Question, R, Way, cuts, moved


def _looked_up(call: Any, pieces: list, found: Any) -> Any:
    weight, indices = pieces
    values = call.with_tensors(pieces)
    if not any(p.is_shard(0) for p in found.operands[0]):
        return call.run_with(values)
    _, _, padding, by_frequency, sparse = values
    if by_frequency or sparse:
        raise NotImplementedError(
            "embedding of a table that is cut by rows: scale_grad_by_freq and sparse are not implemented. Cut it by columns, Shard(1)"
        )
    mesh = call.mesh
    _, (first, *_) = local_shape_and_offset(call.tensors[0].shape, mesh.shape, mesh.get_coordinate(), found.operands[0])
    rows = weight.shape[0]
    own = (indices >= first) & (indices < first + rows)
    if not rows:  # no row is here, and the result is to depend on the table all the same
        return weight.new_zeros((*indices.shape, weight.shape[1])) + weight.sum()
    there = (indices - first).masked_fill(~own, 0)
    padding = padding - first if padding is not None and first <= padding < first + rows else -1
    return call.run_with([weight, there, padding, by_frequency, sparse]).masked_fill(~own.unsqueeze(-1), 0)


@rule("embedding", run=_looked_up)
def embedding(question: Question) -> list[Way]:
    """(weight (rows, D), indices (*)) -> (*, D)."""
    weight, indices = question.now
    last = len(question.shapes[1])
    ways = [Way((R, p), (p,)) for p in cuts([indices])]
    if weight.is_shard(1):
        ways.append(Way((weight, R), (moved(weight, last),)))
    if weight == Shard(0):
        ways.append(Way((weight, R), (SUM,)))
    return [*ways, question.replicated()]


@rule("_index_select")
def index_select(question: Question) -> list[Way]:
    """(input, dim, index (K))."""
    rank = len(question.shapes[0])
    dim = question.argument("dim") % rank if rank else 0
    ways = [Way((p, R), (p,)) for p in cuts(question.now[:1]) if p.dim != dim]
    ways += [Way((R, p), (moved(p, dim),)) for p in cuts(question.now[1:])]
    return [*ways, question.replicated()]


@rule("_gather", "_take_along")
def gather(question: Question) -> list[Way]:
    """(input, dim, index): both are cut alike where all of a dimension is indexed."""
    if question.shapes[0] and [n for d, n in enumerate(question.shapes[0]) if d != question.argument("dim") % len(question.shapes[0])] != [
        n for d, n in enumerate(question.shapes[1]) if d != question.argument("dim") % len(question.shapes[0])
    ]:
        return [question.replicated()]
    ways = across(question, (question.argument("dim"),))
    rank = len(question.shapes[0])
    alone = [Way((R, p), (p,)) for p in cuts(question.now[1:]) if rank and p.dim == question.argument("dim") % rank]
    return [*alone, *ways]


@rule("_scatter", "_scatter_add", "_scatter_value", "_index_fill", "_scatter_reduce")
def scatter(question: Question) -> list[Way]:
    """(input, dim, index, ...): all cut alike through another dimension, if all have its full size."""
    rank = len(question.shapes[0])
    dim = question.argument("dim") % rank if rank else 0
    if any(
        len(s) != rank or any(n != m for d, (n, m) in enumerate(zip(s, question.shapes[0], strict=True)) if d != dim)
        for s in question.shapes
    ):
        return [question.replicated()]
    return across(question, (dim,))


@rule("nn.functional.one_hot")
def one_hot(question: Question) -> list[Way]:
    """(*) -> (*, classes)."""
    known = question.argument("num_classes") != -1  # else the largest class of all pieces decides
    return [*[question.everywhere(p) for p in cuts(question.now) if known], question.replicated()]


@rule("_index")
def index(question: Question) -> list[Way]:
    """input[indices]: what is not indexed may stay cut; where one index tensor is cut, so is the result."""
    indices, now = question.argument("indices"), question.now
    places = [d for d, i in enumerate(indices) if i is not None]
    if any(i is not None and i.dtype.name in ("bool", "uint8") for i in indices):
        return [question.replicated()]
    adjacent = places == list(range(places[0], places[0] + len(places)))
    width = max(len(s) for s in question.shapes[1:])
    front = places[0] if adjacent else 0
    ways = []
    for p in cuts(now[:1]):
        if p.dim not in places:
            before = p.dim - sum(d < p.dim for d in places)
            to = before + (width if not adjacent or p.dim > places[0] else 0)
            ways.append(Way((p, *(R,) * (len(now) - 1)), (moved(p, to),)))
    for p in dict.fromkeys(cuts(now[1:])):
        if all(len(s) == width and s[p.dim] == question.shapes[1][p.dim] for s in question.shapes[1:]):
            ways.append(Way((R, *(p,) * (len(now) - 1)), (moved(p, p.dim + front),)))
    return [*ways, question.replicated()]


@rule("_index_put", "_index_add", "_index_copy", "_put", "_take", "_masked_scatter", "_repeat_indices", "_bincount", "_isin", "_index_reduce",
      "_diagonal_scatter", "_slice_scatter", "_select_scatter", "multinomial", "_search", "_by_channel", "_cross", "_cdist", "_rot90", "_block_diag", "placed",
      "_window", "_permutation")  # fmt: skip
def whole(question: Question) -> list[Way]:
    """Everything everywhere: an index may point at any piece, and a statistic is one of all."""
    return [question.replicated()]
