"""Tensors put together, repeated, padded: the dimension that grows has to be whole."""

from __future__ import annotations

from flambeau.distributed.tensor.rules import rule
from flambeau.distributed.tensor.rules.views import without
from flambeau.distributed.tensor.ways import Question, Way, cuts, moved


@rule("_cat", "_stack")
def together(question: Question) -> list[Way]:
    """Along a dimension that exists, or that is new."""
    stacked = question.call.name == "_stack"
    rank = max(map(len, question.shapes)) + stacked
    dim = question.argument("dim") % max(rank, 1)
    ways = []
    for p in dict.fromkeys(question.now):
        if p.is_partial():
            ways.append(question.everywhere(p))
    for p in dict.fromkeys(cuts(question.now)):
        if stacked:
            ways.append(Way((p,) * len(question.now), (moved(p, p.dim + (p.dim >= dim)),)))
        elif p.dim != dim:
            ways.append(question.everywhere(p))
    return [*ways, question.replicated()]


@rule("_repeat")
def repeated(question: Question) -> list[Way]:
    """repeat(times): dimensions that are repeated once may be cut."""
    times, rank = question.argument("times"), len(question.shapes[0])
    lead = len(times) - rank
    now = question.now[0]
    ways = [question.everywhere(now)] if now.is_partial() else []
    ways += [Way((p,), (moved(p, p.dim + lead),)) for p in cuts([now]) if times[p.dim + lead] == 1]
    return [*ways, question.replicated()]


@rule("constant_pad_nd")
def padded(question: Question) -> list[Way]:
    """`pad` has pairs, the last dimension first."""
    pad, rank = question.argument("pad"), len(question.shapes[0])
    dims = [rank - 1 - i // 2 for i in range(0, len(pad), 2) if pad[i] or pad[i + 1]]
    return [way for way in without(question, *dims) if not way.operands[0].is_partial() or not question.argument("value")]
