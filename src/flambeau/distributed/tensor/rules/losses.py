"""Losses of classes: samples may be dealt out. A mean over samples is a sum over a count, for pieces may count differently.

Where the classes are cut, `parallel.loss_parallel()` computes the loss without gathering them (parallel/loss.py).
"""

from __future__ import annotations

from typing import Any

from flambeau.distributed.tensor import dispatch
from flambeau.distributed.tensor._api import DTensor
from flambeau.distributed.tensor.calls import Call
from flambeau.distributed.tensor.parallel import loss as parallel_loss
from flambeau.distributed.tensor.placement_types import Shard
from flambeau.distributed.tensor.rules import COMPOSED, rule
from flambeau.distributed.tensor.ways import SUM, Question, R, Way
from flambeau.ops import OPS


def _fresh(call: Any, pieces: list, found: Any) -> Any:
    """With a dictionary of its own, in which the operation keeps what its derivative reads."""
    values = call.with_tensors(pieces)
    values[-1] = {}
    return call.run_with(values)


@rule("_nll_loss", "_cross_entropy", run=_fresh)
def of_classes(question: Question) -> list[Way]:
    """(input (N, C, *), target (N, *), weight (C,) or None)."""
    rank, reduction = len(question.shapes[0]), question.argument("reduction")
    ways = []
    if rank > 1 and reduction != "mean":
        for d in [0, *range(2, rank)]:
            at = Shard(d), Shard(d if d == 0 else d - 1)
            if at[0] == question.now[0] or at[1] == question.now[1]:
                ways.append(Way((*at, *(R,) * (len(question.now) - 2)), (at[1] if reduction == "none" else SUM,)))
    return [*ways, question.replicated()]


def _mean_by_count(name: str) -> Any:
    op = OPS[name]

    def function(input: Any, target: Any, weight: Any, ignore_index: int, reduction: str, *rest: Any) -> Any:
        def run(how: str) -> Any:
            return dispatch._result(Call(op, (input, target, weight, ignore_index, how, *rest), {}, False))

        if name == "_cross_entropy" and parallel_loss.active() and isinstance(input, DTensor):
            return parallel_loss.cross_entropy(input, target, weight, ignore_index, reduction, rest[0])
        cut = any(isinstance(x, DTensor) and any(p.is_shard() for p in x.placements) for x in (input, target))
        if reduction != "mean" or not cut or input.dim() < 2:
            return run(reduction)
        counted = target != ignore_index
        if weight is None:
            count = counted.sum()
        else:
            count = OPS["_index_select"](weight, 0, target.masked_fill(~counted, 0).flatten()).mul(counted.flatten()).sum()
        return run("sum") / count

    return function


COMPOSED["_cross_entropy"] = _mean_by_count("_cross_entropy")
COMPOSED["_nll_loss"] = _mean_by_count("_nll_loss")
