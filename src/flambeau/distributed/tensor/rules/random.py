"""Operations that draw random numbers: every rank draws those of the whole tensor and keeps its own, see drawing.py."""

from __future__ import annotations

from typing import Any

from flambeau.distributed.tensor import drawing
from flambeau.distributed.tensor.rules import rule
from flambeau.distributed.tensor.ways import Question, R, Way, cuts

WRITERS = "Tensor.normal Tensor.uniform Tensor.bernoulli Tensor.exponential Tensor.geometric Tensor.cauchy Tensor.log_normal Tensor.random"


def _whole_and_cut(call: Any, pieces: list, found: Any) -> Any:
    """The operation on a blank of the whole shape, of which this rank's piece is kept."""
    first, placements = call.tensors[0], found.results[0]
    own = pieces[0]

    def draw(blank: Any) -> Any:
        values = call.with_tensors([blank, *pieces[1:]])
        return call.run_with(values)

    drawn = drawing.drawn(call.mesh, first.shape, own.dtype, placements, draw)
    return own.copy_(drawn) if call.in_place else drawn


@rule(*WRITERS.split(), run=_whole_and_cut)
def written(question: Question) -> list[Way]:
    """Elements are drawn by themselves: cut as the first operand is."""
    ways = [Way((p, *(R,) * (len(question.now) - 1)), (p,)) for p in cuts(question.now[:1])]
    return [*ways, question.replicated()]


def _noise(call: Any, pieces: list, found: Any) -> Any:
    shape, keep, scaled = call.values[1:]
    whole = tuple(call.tensors[0].shape) if shape is None else tuple(shape)
    return drawing.drawn(call.mesh, whole, pieces[0].dtype, found.results[0], lambda blank: call.run_with([blank, None, keep, scaled]))


@rule("_noise", run=_noise)
def noise(question: Question) -> list[Way]:
    """Of dropout: in the shape of the input, or in another, with sizes of 1, that repeats to it."""
    shape = question.results[0] or ()
    ways = [Way((p,), (p if shape[p.dim] == question.shapes[0][p.dim] else R,)) for p in cuts(question.now)]
    return [*ways, *([Way(question.now, (R,))] if question.now[0].is_partial() else []), question.replicated()]


def _of_probabilities(call: Any, pieces: list, found: Any) -> Any:
    drawing.agree(call.mesh)
    return call.run_on(pieces)


@rule("bernoulli", "_normal_around", "poisson", "binomial", "_standard_gamma", "_sample_dirichlet", run=_of_probabilities)
def of_probabilities(question: Question) -> list[Way]:
    """Drawn with numbers of a tensor: replicated, so that all ranks draw the same."""
    return [question.replicated()]
