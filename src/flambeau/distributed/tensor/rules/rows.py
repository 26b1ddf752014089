"""What works along rows, each by itself: softmax, norms, sums along a dimension, sorting. The rows have to be whole, and may be dealt out."""

from __future__ import annotations

from flambeau.distributed.tensor.rules import rule
from flambeau.distributed.tensor.rules.reductions import kept, reduced_dims
from flambeau.distributed.tensor.ways import Question, R, Way, cuts

ALONG = """softmax log_softmax _softmax_backward _log_softmax_backward cumsum cumprod cummax cummin logcumsumexp _sort topk kthvalue mode _cosine"""


@rule(*ALONG.split())
def along_dim(question: Question) -> list[Way]:
    """Operations with a `dim` that remains in the result."""
    return across(question, (question.argument("dim"),))


@rule("_max_dim", "_min_dim", "_median_dim", "_nanmedian_dim", "argmax", "argmin")
def along_dim_that_goes(question: Question) -> list[Way]:
    """Operations with a `dim` that goes, unless `keepdim`."""
    dims, keepdim = reduced_dims(question.argument("dim"), len(question.shapes[0])), bool(question.argument("keepdim"))
    ways = [Way((p,), (kept(p, dims, keepdim),) * len(question.results)) for p in cuts(question.now) if p.dim not in dims]
    return [*ways, question.replicated()]


@rule("_layer_norm", "_rms_norm")
def normalized(question: Question) -> list[Way]:
    """(input, weight, bias): the last dimension is normalized. Weights and biases are whole; their gradients are terms."""
    last = len(question.shapes[0]) - 1
    ways = [Way((p, *(R,) * (len(question.now) - 1)), (p,) * len(question.results)) for p in cuts(question.now[:1]) if p.dim != last]
    return [*ways, question.replicated()]


def across(question: Question, dims: tuple) -> list[Way]:
    """All operands and results cut alike, through other dimensions than these."""
    rank = len(question.shapes[0])
    fixed = {d % rank for d in dims} if rank else set()
    return [*[question.everywhere(p) for p in dict.fromkeys(cuts(question.now)) if p.dim not in fixed], question.replicated()]
