"""Losses that compare: the score of the right class with those of the others, and embeddings with each other.

multi_margin_loss, multilabel_margin_loss, multilabel_soft_margin_loss                      scores of classes
cosine_embedding_loss, triplet_margin_loss, triplet_margin_with_distance_loss              embeddings
"""

from __future__ import annotations

import functools

from flambeau import dtypes
from flambeau.ops.asking import anywhere
from flambeau.ops.declare import composite
from flambeau.ops.distances import pairwise_distance
from flambeau.ops.loss_reduction import REDUCTIONS, chosen, reduced
from flambeau.ops.views import _unsafe_view

functional = functools.partial(composite, method=False)

# -- scores of classes -------------------------------------------------------------------------------------------------------


@functional(name="nn.functional.multi_margin_loss", grad_name="MultiMarginLossBackward0", autocast="float32")
def multi_margin_loss(input, target, p=1, margin=1.0, weight=None, size_average=None, reduce=None, reduction="mean"):
    """sum over the wrong classes of max(0, margin - x[target] + x)^p, divided by the number of classes; weighed by weight[target].

    input (N, C) or (C), target (N) or () -> (), or the target's shape for "none".
    """
    reduction = chosen(reduction, size_average, reduce)
    if p not in (1, 2):
        raise ValueError(f"multi_margin_loss: only p == 1 and p == 2 supported, found {p}")
    if weight is not None and weight.dim() != 1:
        raise ValueError(f"multi_margin_loss: weight must be one-dimensional, found shape {tuple(weight.shape)}")
    rows = _matrix("multi_margin_loss", input)
    n, c = rows.shape
    if target.dim() > 1 or target.numel() != n:
        raise RuntimeError(
            "multi_margin_loss: target tensor should be 1-D with size equal to that of the batch. "
            f"Expected target size [{n}], but got {list(target.shape)}. Input has shape {list(input.shape)}."
        )
    _check_labels("multi_margin_loss", target)
    if weight is not None and weight.numel() != c:
        raise RuntimeError(f"multi_margin_loss: inconsistent weight size, expected {c} but got {list(weight.shape)}")
    at = target.reshape((n, 1))
    if anywhere((at < 0) | (at >= c)):
        raise RuntimeError(f"multi_margin_loss: target out of range: the {c} classes are 0 to {c - 1}, found {_outside(at, 0, c)}")
    loss = (margin - rows.gather(1, at) + rows).clamp_min(0)
    if p == 2:
        loss = loss * loss
    if weight is not None:
        loss = loss * weight[at]
    loss = loss.scatter(1, at, 0.0).sum(1) / c
    return reduced(_unsafe_view(loss, tuple(target.shape)) if reduction == "none" else loss, reduction)


@functional(name="nn.functional.multilabel_margin_loss", grad_name="MultilabelMarginLossBackward0", autocast="float32")
def multilabel_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """sum over pairs of a right class i and a wrong one j of max(0, 1 - x[i] + x[j]), divided by the number of classes.

    A row of the target lists the right classes, up to the first -1. input (N, C) or (C), target of the same shape -> (), or (N).
    """
    reduction = chosen(reduction, size_average, reduce)
    rows = _matrix("multilabel_margin_loss", input)
    if input.shape != target.shape:
        raise RuntimeError(f"multilabel_margin_loss: inconsistent target size: {list(target.shape)} for input of size: {list(input.shape)}")
    _check_labels("multilabel_margin_loss", target)
    n, c = rows.shape
    target = target.reshape((n, c))
    if anywhere((target < -1) | (target >= c)):
        raise RuntimeError(
            f"multilabel_margin_loss: argument #2 'target' is out of range: the {c} classes are 0 to {c - 1}, and -1 ends a list; "
            f"found {_outside(target, -1, c)}"
        )
    listed = (target < 0).cumsum(1) == 0  # before the first -1
    at = target.masked_fill(~listed, 0)
    right = rows.new_zeros((n, c)).scatter_add(1, at, listed.to(rows.dtype)) > 0
    scores = rows.gather(1, at)
    pairs = (1 - scores.unsqueeze(2) + rows.unsqueeze(1)).clamp_min(0)  # (N, listed, others)
    loss = pairs.masked_fill(~(listed.unsqueeze(2) & ~right.unsqueeze(1)), 0).sum((1, 2)) / max(c, 1)
    return reduced(loss if input.dim() > 1 else _unsafe_view(loss, ()), reduction)


def _matrix(name: str, input):
    """The input as (N, C)."""
    shape = tuple(input.shape)
    if len(shape) > 2 or 0 in shape[1:] or shape == (0,):
        raise RuntimeError(f"{name}: Expected non-empty vector or matrix with optional 0-dim batch size, but got: {list(shape)}")
    if input.dtype.category != dtypes.FLOAT:
        raise NotImplementedError(f'"{name}" not implemented for {input.dtype.name}. Try input.float()')
    return input if len(shape) == 2 else input.reshape((1, -1))


def _check_labels(name: str, target) -> None:
    if target.dtype is not dtypes.int64:
        raise RuntimeError(
            f"{name}: expected scalar type Long but found {target.dtype.name}: targets are numbers of classes. Try target.long()"
        )


def _outside(labels, low: int, high: int) -> int:
    return labels[(labels < low) | (labels >= high)][0].item()


@functional(name="nn.functional.multilabel_soft_margin_loss")
def multilabel_soft_margin_loss(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    """The mean over the classes of -weight * (y log(sigmoid(x)) + (1 - y) log(sigmoid(-x))). (N, C), (N, C) -> (), or (N)."""
    from flambeau.ops.losses import _bce_with_logits

    reduction = chosen(reduction, size_average, reduce)
    loss = _bce_with_logits(input, target.to(input.dtype) if not target.dtype.is_floating_point else target)
    if weight is not None:
        loss = loss * weight
    return reduced(loss.sum(-1) / input.shape[-1], reduction)


# -- embeddings --------------------------------------------------------------------------------------------------------------


@functional(name="nn.functional.cosine_embedding_loss", autocast="float32")
def cosine_embedding_loss(input1, input2, target, margin=0, size_average=None, reduce=None, reduction="mean"):
    """1 - cos(x1, x2) where the target is 1, max(0, cos(x1, x2) - margin) where it is -1. (N, D), (N, D), (N) or (D), (D), ()."""
    reduction = chosen(reduction, size_average, reduce)
    if target.dim() > 1:
        raise RuntimeError(
            f"cosine_embedding_loss: 0D or 1D target tensor expected (multi-target is not possible), one sign for each pair, found {tuple(target.shape)}"
        )
    if max(input1.dim(), input2.dim()) != target.dim() + 1:
        raise RuntimeError(
            f"cosine_embedding_loss: {target.dim()}D target tensor expects {target.dim() + 1}D input tensors, but found inputs with sizes "
            f"{list(input1.shape)} and {list(input2.shape)}."
        )
    dim = target.dim()
    tiny = 1e-12  # within the root, so that a vector of zeros has a gradient
    squares = ((input1 * input1).sum(dim) + tiny) * ((input2 * input2).sum(dim) + tiny)
    cosine = (input1 * input2).sum(dim) / squares.sqrt()
    near = (1 - cosine).masked_fill(target != 1, 0)
    far = (cosine - margin).clamp_min(0).masked_fill(target != -1, 0)
    return reduced(near + far, reduction)


@functional(name="nn.functional.triplet_margin_loss", autocast="float32")
def triplet_margin_loss(
    anchor, positive, negative, margin=1.0, p=2, eps=1e-6, swap=False, size_average=None, reduce=None, reduction="mean"
):  # fmt: skip
    """max(0, margin + |anchor - positive| - |anchor - negative|), in the p-norm of the last dimension. (N, D) or (D) -> (), or (N).

    swap   compare with |positive - negative| where that is smaller (Balntas et al. 2016)
    """
    reduction = chosen(reduction, size_average, reduce)
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    return _triplet(anchor, positive, negative, functools.partial(pairwise_distance, p=p, eps=eps), margin, swap, reduction)


@functional(name="nn.functional.triplet_margin_with_distance_loss")
def triplet_margin_with_distance_loss(anchor, positive, negative, *, distance_function=None, margin=1.0, swap=False, reduction="mean"):
    """triplet_margin_loss with a distance of one's own; the Euclidean one if none is given."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"triplet_margin: {reduction} is not a valid value for reduction")
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    return _triplet(anchor, positive, negative, distance_function or pairwise_distance, margin, swap, reduction)


def _triplet(anchor, positive, negative, distance, margin, swap, reduction):
    if not anchor.dim() == positive.dim() == negative.dim():
        raise RuntimeError(
            f"anchor, positive and negative must have the same number of dimensions, found {anchor.dim()}, {positive.dim()} "
            f"and {negative.dim()}"
        )
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = far.minimum(distance(positive, negative))
    return reduced((margin + near - far).clamp_min(0), reduction)
