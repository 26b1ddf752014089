"""Attention: samples and heads may be dealt out, each has its own scores. Queries may be, too, where each may look at all keys."""

from __future__ import annotations

from flambeau.distributed.tensor.rules import rule
from flambeau.distributed.tensor.ways import Question, R, Way, cuts, moved


@rule("_attention")
def attention(question: Question) -> list[Way]:
    """(query (*, L, E), key (*, S, E), value (*, S, V), mask that repeats to (*, L, S) or None) -> (result (*, L, V), (*, L))."""
    rank = len(question.shapes[0])
    ways = []
    for p in dict.fromkeys(cuts(question.now[:3])):
        if p.dim < rank - 2:
            operands = [p, p, p, *[_of_mask(p, s, rank) for s in question.shapes[3:]]]
        elif p.dim == rank - 2 and p == question.now[0] and not question.argument("causal"):
            operands = [p, R, R, *[_of_mask(p, s, rank) for s in question.shapes[3:]]]
        else:
            continue
        ways.append(Way(tuple(operands), (p,) * len(question.results)))
    return [*ways, question.replicated()]


def _of_mask(placement, shape: tuple[int, ...], rank: int):
    dim = placement.dim - rank + len(shape)
    return moved(placement, dim) if dim >= 0 and shape[dim] > 1 else R
