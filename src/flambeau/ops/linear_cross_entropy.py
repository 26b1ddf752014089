"""The cross entropy of a linear layer's results, whole or in chunks of samples.

With very many classes the logits (N, C) are what fills the memory. In chunks they are made, used and forgotten, forward and backward.
"""

from __future__ import annotations

from math import prod

import numpy as np

from flambeau import dtypes, errors
from flambeau.kernels import arrays
from flambeau.kernels.reductions.reduce import dense
from flambeau.kernels.templates import cross_entropy as classes
from flambeau.kernels.templates import gemm
from flambeau.ops.cross_entropy import LOSSES, check_target, cross_entropy, flat_target, losses, scaled, weights_of
from flambeau.ops.declare import composite, on_arrays
from flambeau.ops.joining import cat
from flambeau.ops.linear import linear
from flambeau.ops.loss_reduction import REDUCTIONS


@composite(name="nn.functional.linear_cross_entropy", method=False)
def linear_cross_entropy(
    input, linear_weight, target, *, linear_bias=None, weight=None, reduction="mean", ignore_index=None, label_smoothing=0.0, options=None
):  # fmt: skip
    """cross_entropy(linear(input, linear_weight, linear_bias), target). input (N, D) or (D), linear_weight (C, D) or (C, d1, ..., D).

    options   a torch.nn.LinearCrossEntropyOptions: go through the batch in chunks
    """
    _check(input, linear_weight, linear_bias)
    features, shape = input.shape[-1], tuple(linear_weight.shape[:-1])
    probabilities = tuple(target.shape) == (*input.shape[:-1], *shape)
    if probabilities and ignore_index is not None:
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    ignored = -100 if ignore_index is None else ignore_index
    if options is not None:
        if len(shape) == 1 and reduction in REDUCTIONS and not label_smoothing and target.dtype is dtypes.int64 and not probabilities:
            return _in_chunks(input, linear_weight, linear_bias, target, weight, ignored, reduction, options)
        errors.warn(
            "linear_cross_entropy: ``options`` ignored, as the loss is not computed in chunks: that takes labels of int64 "
            f"without smoothing and a weight of 2 dimensions, found {target.dtype}, label_smoothing={label_smoothing}, "
            f"reduction={reduction!r}, further dimensions {shape[1:]}"
        )
    bias = None if linear_bias is None else linear_bias.reshape((prod(shape),))
    logits = linear(input, linear_weight.reshape((prod(shape), features)), bias).reshape((*input.shape[:-1], *shape))
    return cross_entropy(logits, target, weight, None, ignored, None, reduction, label_smoothing)


def _check(input, linear_weight, linear_bias) -> None:
    if input.dim() not in (1, 2):
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.dim()}")
    if linear_weight.dim() < 2:
        raise RuntimeError(f"expected linear_weight with dimensionality at least 2, got {linear_weight.dim()}")
    features, shape = input.shape[-1], tuple(linear_weight.shape[:-1])
    if features != linear_weight.shape[-1]:
        raise RuntimeError(
            f"expected equal input and linear_weight last dimensions (in_features), found {features} and {linear_weight.shape[-1]}"
        )
    if linear_bias is not None and tuple(linear_bias.shape) != shape:
        raise RuntimeError(f"expected linear_bias shape {shape}, got {tuple(linear_bias.shape)}")
    if len(shape) > 1 and input.dim() == 1:
        raise RuntimeError(
            f"linear_cross_entropy: linear_weight {tuple(linear_weight.shape)} makes a loss of several dimensions, of an "
            f"input (N, {features}), found {tuple(input.shape)}"
        )


def _in_chunks(input, linear_weight, linear_bias, target, weight, ignore_index, reduction, options):
    single = input.dim() == 1
    if single:
        input, target = input.unsqueeze(0), target.reshape((1,))
    n, (c, features) = input.shape[0], linear_weight.shape
    check_target("linear_cross_entropy", input.new_empty((n, c), device="meta"), target, weight)
    rows = _chunk(options, n, features, c)
    loss = _linear_cross_entropy(input, linear_weight, linear_bias, target, weight, ignore_index, reduction, rows)
    return loss.reshape(()) if single else loss


def _chunk(options, n: int, features: int, classes: int) -> int:
    """The samples of a chunk: see torch.nn.LinearCrossEntropyOptions."""
    method, size = options.chunking_method, options.batch_chunk_size
    if method is None or (method == "auto" and size is not None):
        return size or max(n, 1)
    factor = 2 if method == "auto" else int(method.partition(":")[2] or 1)
    share = -(-n // -(-classes // max(features, 1)))
    found = max(1, min((1 << max(share - 1, 0).bit_length()) // factor, n))
    if size is not None and size != found:
        raise ValueError(f"batch_chunk_size is {size}, but chunking_method {method!r} makes it {found}: give one of the two")
    return found


@on_arrays(public=False, method=False)
def _linear_cross_entropy(input, linear_weight, linear_bias, target, weight, ignore_index, reduction, rows):
    """Chunks of `rows` samples. input (N, D), linear_weight (C, D), linear_bias (C) or None, target (N) -> (), or (N) for "none"."""
    xp, labels = arrays.module_of(input), flat_target(target)
    found = []
    for start in range(0, max(input.shape[0], 1), rows):
        logits = gemm.product(input[start : start + rows], linear_weight.T)
        logits = logits if linear_bias is None else logits + linear_bias
        found.append(_losses(arrays.contiguous(logits), labels[start : start + rows], ignore_index))
    loss = xp.concatenate(found)
    share = (labels != ignore_index).astype(loss.dtype) if weight is None else weights_of(loss, labels, weight, ignore_index)
    loss = loss * share
    if reduction == "none":
        return dense(loss, input.dtype, input)
    with np.errstate(all="ignore"):
        total = loss.sum(dtype=np.float64)
        return dense(total / share.sum(dtype=np.float64) if reduction == "mean" else total, input.dtype, input)


def _losses(logits, labels, ignore_index):
    """The loss of every row."""
    found = classes.losses_at_once(LOSSES, logits, labels, (ignore_index,))
    return losses(logits, labels, ignore_index, 0.0, False)[1][:-1, 0] if found is None else found[0].reshape(-1)


@_linear_cross_entropy.meta
def _(input, linear_weight, linear_bias, target, weight, ignore_index, reduction, rows):
    return target.shape if reduction == "none" else (), input.dtype


@_linear_cross_entropy.joint
def _(grad, input, linear_weight, linear_bias, target, weight, ignore_index, reduction, rows, needs):
    """share * (softmax - one at the target), chunk by chunk, through the linear layer."""
    _, at, _, scale = scaled(grad, input, target, weight, ignore_index, reduction)
    of_input: list = []
    of_weight = of_bias = None
    for start in range(0, max(input.shape[0], 1), rows):
        some = slice(start, start + rows)
        x, place = input[some], at[some]
        softmax = linear(x, linear_weight, linear_bias).softmax(1)
        sent = (softmax - softmax.new_zeros(softmax.shape).scatter(1, place, 1.0)) * scale[some]
        of_input.append(sent @ linear_weight)
        if needs["linear_weight"]:
            part = sent.t() @ x
            of_weight = part if of_weight is None else of_weight + part
        if needs.get("linear_bias"):
            part = sent.sum(0)
            of_bias = part if of_bias is None else of_bias + part
    return {"input": cat(of_input) if needs["input"] else None, "linear_weight": of_weight, "linear_bias": of_bias}
