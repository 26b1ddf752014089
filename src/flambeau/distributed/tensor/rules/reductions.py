"""Reductions: a dimension that is not reduced stays cut; reducing one that is cut leaves terms on the ranks, to be reduced when somebody asks.

Maxima, products and norms of pieces are left as terms only where no gradient is wanted: it would have to know which rank had the maximum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.distributed.tensor.placement_types import Partial, Placement, _NormPartial
from flambeau.distributed.tensor.rules import rule
from flambeau.distributed.tensor.ways import SUM, Question, Way, cuts, moved

Terms = Callable[[Question, int], Placement | None]  # what reducing the cut dimension leaves; None: it cannot be left


def _sum(question: Question, dim: int) -> Placement | None:
    return SUM


def _mean(question: Question, dim: int) -> Placement | None:
    spec = question.call.tensors[0]._spec
    return Partial("avg") if spec.shape[dim] % spec.num_shards_map[dim] == 0 else None  # means of unequal pieces have no plain mean


def _unrecorded(op: str) -> Terms:
    def terms(question: Question, dim: int) -> Placement | None:
        return None if question.call.recorded or not filled(question, dim) else Partial(op)

    return terms


def _norm(question: Question, dim: int) -> Placement | None:
    order = question.argument("ord")
    return None if question.call.recorded or (order in (float("inf"), float("-inf")) and not filled(question, dim)) else _NormPartial(order)


def _none(question: Question, dim: int) -> Placement | None:
    return None


def filled(question: Question, dim: int) -> bool:
    """Whether no rank's piece is empty: an empty one has no maximum."""
    spec = question.call.tensors[0]._spec
    size, pieces = spec.shape[dim], spec.num_shards_map[dim]
    return size > -(-size // pieces) * (pieces - 1)


KINDS: dict[str, Terms] = {
    "_sum": _sum, "_nansum": _sum, "_mean": _mean, "_amax": _unrecorded("max"), "_amin": _unrecorded("min"), "_prod": _unrecorded("product"),
    "_any": _unrecorded("max"), "_all": _unrecorded("min"), "_count_nonzero": _sum, "_vector_norm": _norm, "_logsumexp": _none, "_var": _none,
    "_std": _none, "_var_mean": _none, "_std_mean": _none, "_aminmax": _none,
}  # fmt: skip
ALL: dict[str, Terms] = {
    "_sum_all": _sum, "_mean_all": _mean, "_prod_all": _unrecorded("product"), "_max_all": _unrecorded("max"), "_min_all": _unrecorded("min"),
}  # fmt: skip
LINEAR = frozenset("_sum _sum_all _mean _mean_all".split())


@rule(*KINDS)
def over_dims(question: Question) -> list[Way]:
    """_<kind>(input, dims, keepdim, ...)."""
    rank = len(question.shapes[0])
    dims = reduced_dims(question.argument("dims"), rank)
    return _ways(question, KINDS[question.call.name], dims, bool(question.argument("keepdim")))


@rule(*ALL)
def over_all(question: Question) -> list[Way]:
    """_<kind>_all(input, ...)."""
    return _ways(question, ALL[question.call.name], set(range(len(question.shapes[0]))), False)


def reduced_dims(dims: Any, rank: int) -> set[int]:
    """Which dimensions are reduced: all, if none are named."""
    if dims is None or (isinstance(dims, (tuple, list)) and not dims):
        return set(range(rank))
    return {d % rank for d in ((dims,) if isinstance(dims, int) else dims)} if rank else set()


def _ways(question: Question, terms: Terms, dims: set[int], keepdim: bool) -> list[Way]:
    ways, now, n = [], question.now[0], len(question.results)
    for p in cuts([now]):
        if p.dim not in dims:
            ways.append(Way((p,), (kept(p, dims, keepdim),) * n))
        elif (left := terms(question, p.dim)) is not None:
            ways.append(Way((p,), (left,) * n))
    if question.call.name in LINEAR and (now.is_partial("sum") or now.is_partial("avg")):
        ways.append(question.everywhere(now))
    return [*ways, question.replicated()]


def kept(placement: Any, dims: set[int], keepdim: bool) -> Placement:
    """A cut through a dimension that remains, by its place in the result."""
    return placement if keepdim else moved(placement, placement.dim - sum(d < placement.dim for d in dims))
