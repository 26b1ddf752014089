"""Losses of elements: a formula of input and target for each, then their mean or sum.

    distances        mse_loss, l1_loss, smooth_l1_loss, huber_loss
    probabilities    binary_cross_entropy, binary_cross_entropy_with_logits, kl_div
    likelihoods      poisson_nll_loss, gaussian_nll_loss
    signs            soft_margin_loss, hinge_embedding_loss, margin_ranking_loss, whose targets are 1 and -1

`size_average` and `reduce` are what `reduction` was called before; both are still understood, with a warning.
"""

from __future__ import annotations

import functools
import math

from flambeau import errors
from flambeau.kernels.language import expr as e
from flambeau.ops.activation import _logsigmoid
from flambeau.ops.asking import anywhere
from flambeau.ops.conditional import where
from flambeau.ops.declare import composite, pointwise
from flambeau.ops.loss_reduction import check_same_shape, chosen, reduced, warn_of_broadcasting, warn_of_probabilities
from flambeau.ops.scattering import check_tensor

block = functools.partial(pointwise, public=False, method=False, dtypes="float", complex=False, numbers=False)
functional = functools.partial(composite, method=False)

# -- distances ---------------------------------------------------------------------------------------------------------------


@block()
def _mse_loss(input, other):
    """(x - y)^2."""
    off = input - other
    return off * off


_mse_loss.derivative(
    input=lambda grad, input, other: grad * (2 * (input - other)),
    other=lambda grad, input, other: grad * (2 * (other - input)),
)


@functional(name="nn.functional.mse_loss", grad_name="MseLossBackward0", autocast="float32")
def mse_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """(input - target)^2, the mean squared error. With weights, the mean is sum(weight * error) / sum(weight)."""
    reduction = chosen(reduction, size_average, reduce)
    _check_pair("mse_loss", input, target)
    loss = _mse_loss(input, target)
    return reduced(loss, reduction) if weight is None else _weighted(loss, input, weight, reduction)


@functional(name="nn.functional.l1_loss", autocast="float32")
def l1_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """|input - target|, the mean absolute error. With weights, the mean is sum(weight * error) / sum(weight)."""
    reduction = chosen(reduction, size_average, reduce)
    _check_pair("l1_loss", input, target)
    loss = (input - target).abs()
    return reduced(loss, reduction) if weight is None else _weighted(loss, input, weight, reduction)


@block()
def _smooth_l1_loss(input, target, beta=1.0):
    """A parabola that goes on as a straight line where |x - y| >= beta."""
    size = abs(input - target)
    return e.where(size < beta, size * size * (0.5 / beta), size - 0.5 * beta)


@functional(name="nn.functional.smooth_l1_loss", grad_name="SmoothL1LossBackward0", autocast="float32")
def smooth_l1_loss(input, target, size_average=None, reduce=None, reduction="mean", beta=1.0):
    """(x - y)^2 / (2 beta) where |x - y| < beta, |x - y| - beta / 2 elsewhere."""
    reduction = chosen(reduction, size_average, reduce)
    if beta < 0:
        raise RuntimeError(f"smooth_l1_loss: beta says where squares end, and may not be negative, found {beta}")
    if beta == 0:
        return l1_loss(input, target, reduction=reduction)
    _check_pair("smooth_l1_loss", input, target)
    return reduced(_smooth_l1_loss(input, target, float(beta)), reduction)


@block()
def _huber_loss(input, target, delta=1.0):
    """A parabola that goes on as a straight line where |x - y| > delta."""
    size = abs(input - target)
    return e.where(size <= delta, 0.5 * size * size, delta * (size - 0.5 * delta))


@functional(name="nn.functional.huber_loss", grad_name="HuberLossBackward0", autocast="float32")
def huber_loss(input, target, reduction="mean", delta=1.0, weight=None):
    """(x - y)^2 / 2 where |x - y| <= delta, delta (|x - y| - delta / 2) elsewhere. Weights do not change what the mean divides by."""
    reduction = chosen(reduction)
    if delta <= 0:
        raise RuntimeError(f"huber_loss does not support non-positive values for delta, found {delta}.")
    _check_pair("huber_loss", input, target)
    loss = _huber_loss(input, target, float(delta))
    if weight is not None:
        _check_weight(weight, input)
        loss = loss * weight
    return reduced(loss, reduction)


def _check_pair(name: str, input, target) -> None:
    check_tensor(name, "input", input)
    check_tensor(name, "target", target)
    if input.shape != target.shape:
        warn_of_broadcasting(input, target)


def _check_weight(weight, input) -> None:
    if weight.shape != input.shape:
        raise ValueError(f"Weights and input must have one shape (the same size), found {tuple(weight.shape)} and {tuple(input.shape)}.")


def _weighted(loss, input, weight, reduction: str):
    _check_weight(weight, input)
    loss = loss * weight
    return loss.sum() / weight.sum() if reduction == "mean" else reduced(loss, reduction)


# -- probabilities -----------------------------------------------------------------------------------------------------------


@block()
def _binary_cross_entropy(input, other):
    """-y log(x) - (1 - y) log(1 - x), neither logarithm below -100; NaN where x or y is no probability."""
    loss = (other - 1) * e.maximum(e.log1p(-input), -100) - other * e.maximum(e.log(input), -100)
    return e.where((input >= 0) & (input <= 1) & (other >= 0) & (other <= 1), loss, math.nan)


_binary_cross_entropy.derivative(
    input=lambda grad, input, other: grad * (input - other) / e.maximum((1 - input) * input, 1e-12),
    other=lambda grad, input: grad * (e.log1p(-input) - e.log(input)),
)


@functional(name="nn.functional.binary_cross_entropy", grad_name="BinaryCrossEntropyBackward0", autocast="cpu float32, cuda refused")
def binary_cross_entropy(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    """-weight * (y log(x) + (1 - y) log(1 - x)), x and y being probabilities. Same shapes; the weight broadcasts."""
    reduction = chosen(reduction, size_average, reduce)
    check_tensor("binary_cross_entropy", "input", input)
    check_tensor("binary_cross_entropy", "target", target)
    check_same_shape("binary_cross_entropy", input, target)
    if target.dtype is not input.dtype:
        raise RuntimeError(
            f"Found dtype {target.dtype.name} but expected {input.dtype.name}: binary_cross_entropy takes a target of the input's dtype. "
            "Try target.to(input.dtype)"
        )
    loss = _binary_cross_entropy(input, target)
    found = reduced(loss, reduction)
    if not input.is_cuda and anywhere(found.isnan()):
        _check_probabilities("input", input)
        _check_probabilities("target", target)
    return found if weight is None else reduced(loss * weight, reduction)


def _check_probabilities(name: str, values) -> None:
    wrong = ~((values >= 0) & (values <= 1))
    if wrong.any():
        at = tuple(wrong.nonzero()[0].tolist())
        hint = " For logits there is binary_cross_entropy_with_logits" if name == "input" else ""
        raise RuntimeError(f"all elements of {name} should be between 0 and 1, found {values[at].item():g} at position {at}.{hint}")


@block()
def _bce_with_logits(input, other):
    """(1 - y) x + log(1 + exp(-x)), by a form in which nothing overflows."""
    return (1 - other) * input + e.maximum(-input, 0) + e.log1p(e.exp(-abs(input)))


_bce_with_logits.derivative(
    input=lambda grad, input, other: grad * (e.sigmoid(input) - other),
    other=lambda grad, input: grad * -input,
)


@functional(name="nn.functional.binary_cross_entropy_with_logits", grad_name="BinaryCrossEntropyWithLogitsBackward0", autocast="float32")
def binary_cross_entropy_with_logits(
    input, target, weight=None, size_average=None, reduce=None, reduction="mean", pos_weight=None
):  # fmt: skip
    """binary_cross_entropy(sigmoid(input), target) without its rounding; `pos_weight` weighs the positive answers, y log(x)."""
    reduction = chosen(reduction, size_average, reduce)
    check_tensor("binary_cross_entropy_with_logits", "input", input)
    check_tensor("binary_cross_entropy_with_logits", "target", target)
    if input.shape != target.shape:
        check_same_shape("binary_cross_entropy_with_logits", input, target)
    if not target.dtype.is_floating_point:
        raise RuntimeError(
            f"binary_cross_entropy_with_logits takes a target of probabilities, found {target.dtype.name}: result type "
            f"{input.dtype.name} can't be cast to the desired output type {target.dtype.name}. Try target.float()"
        )
    _notice_logits(input)
    if pos_weight is None and input.dtype.itemsize > 2:
        loss = _bce_with_logits(input, target)
    else:  # step by step, so that half precision is rounded where PyTorch rounds it. (Under autocast it is computed in float32.)
        log = _logsigmoid(input)
        loss = (1 - target) * input - (log if pos_weight is None else ((pos_weight - 1) * target + 1) * log)
    return reduced(loss if weight is None else loss * weight, reduction)


@binary_cross_entropy_with_logits.each_time
def _notice_logits(input, *rest, **options) -> None:
    wanted = "binary_cross_entropy_with_logits applies sigmoid itself. Give it the logits, or use binary_cross_entropy"
    warn_of_probabilities("binary_cross_entropy_with_logits", input, wanted)


@functional(name="nn.functional.kl_div", autocast="float32")
def kl_div(input, target, size_average=None, reduce=None, reduction="mean", log_target=False):
    """y (log(y) - x): how far the distribution exp(x) is from y. With `log_target`, y is given as its logarithm.

    "batchmean" divides the sum by the first dimension, as the definition has it; "mean" divides by all elements.
    """
    per_sample = size_average is None and reduce is None and reduction == "batchmean"
    if size_average is None and reduce is None and reduction == "mean":
        errors.warn(
            "kl_div with reduction='mean' divides by the number of all elements; the divergence by its definition is "
            "reduction='batchmean', which divides by the batch size."
        )
    reduction = "sum" if per_sample else chosen(reduction, size_average, reduce)
    if not input.dtype.is_floating_point or not target.dtype.is_floating_point:
        raise RuntimeError(f"kl_div: Integral inputs not supported, found {input.dtype.name} and {target.dtype.name}.")
    _notice_divergence(input)
    loss = reduced(target.exp() * (target - input) if log_target else target.xlogy(target) - target * input, reduction)
    return loss / input.shape[0] if per_sample and input.dim() else loss


@kl_div.each_time
def _notice_divergence(input, *rest, **options) -> None:
    warn_of_probabilities("kl_div", input, "kl_div takes logarithms of probabilities as its first argument. Use log_softmax")


# -- likelihoods -------------------------------------------------------------------------------------------------------------


@functional(name="nn.functional.poisson_nll_loss", autocast="float32")
def poisson_nll_loss(
    input, target, log_input=True, full=False, size_average=None, eps=1e-8, reduce=None, reduction="mean"
):  # fmt: skip
    """rate - target * log(rate): the surprise at a count, without log(target!), of which `full` adds Stirling's approximation above 1.

    The rate is exp(input), or input itself if not `log_input`.
    """
    reduction = chosen(reduction, size_average, reduce)
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        stirling = target * target.log() - target + 0.5 * (2 * math.pi * target).log()
        loss = loss + stirling.masked_fill(target <= 1, 0)
    return reduced(loss, reduction)


@functional(name="nn.functional.gaussian_nll_loss")
def gaussian_nll_loss(input, target, var, full=False, eps=1e-6, reduction="mean"):
    """(log(var) + (input - target)^2 / var) / 2: the surprise at a value where a mean and a variance were expected.

    var   a number, or a tensor of the input's shape, or that with one dimension less or of size 1. It is taken as at least eps; its
          gradient is not told of that.
    full  adds the constant log(2 pi) / 2
    """
    if isinstance(var, (int, float)):
        var = input.new_full(input.shape, var)
    if anywhere(var < 0):
        raise ValueError("var has negative entry/entries: variances are not negative. Try var.exp() if it is a logarithm")
    if var.shape != input.shape:
        if tuple(input.shape[:-1]) == tuple(var.shape):
            var = var.unsqueeze(-1)
        elif input.dim() != var.dim() or sum(y for x, y in zip(input.shape, var.shape, strict=True) if x != y) != 1:
            raise ValueError(f"var is of incorrect size: found {tuple(var.shape)} for an input of {tuple(input.shape)}")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not valid: try 'mean', 'sum' or 'none'")
    var = var.clone()
    var.detach().clamp_(min=eps)
    loss = 0.5 * (var.log() + (input - target) ** 2 / var)
    return reduced(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


# -- signs -------------------------------------------------------------------------------------------------------------------


@block()
def _soft_margin_loss(input, target):
    """log(1 + exp(-x y)), by a form in which nothing overflows."""
    z = -(input * target)
    return e.maximum(z, 0) + e.log1p(e.exp(-abs(z)))


_soft_margin_loss.derivative(
    input=lambda grad, input, target: grad * (-target * e.sigmoid(-(input * target))),
    target=lambda grad, input, target: grad * (-input * e.sigmoid(-(input * target))),
)


@functional(name="nn.functional.soft_margin_loss", grad_name="SoftMarginLossBackward0", autocast="float32")
def soft_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """log(1 + exp(-x y)) for targets y of 1 and -1. The target broadcasts to the shape of the input."""
    reduction = chosen(reduction, size_average, reduce)
    if input.shape != target.shape:
        try:
            target.expand(input.shape)
        except RuntimeError:
            raise RuntimeError(
                f"output with shape {list(input.shape)} doesn't match the broadcast shape: soft_margin_loss found a target of shape "
                f"{list(target.shape)}"
            ) from None
    return reduced(_soft_margin_loss(input, target), reduction)


@functional(name="nn.functional.hinge_embedding_loss", autocast="float32")
def hinge_embedding_loss(input, target, margin=1.0, size_average=None, reduce=None, reduction="mean"):
    """x where the target is 1, max(0, margin - x) where it is -1."""
    reduction = chosen(reduction, size_average, reduce)
    far = where(target != 1, (margin - input).clamp_min(0), 0)
    return reduced(far + where(target != -1, input, 0), reduction)


@functional(name="nn.functional.margin_ranking_loss", autocast="float32")
def margin_ranking_loss(input1, input2, target, margin=0, size_average=None, reduce=None, reduction="mean"):
    """max(0, margin - y (x1 - x2)): y = 1 says that x1 should rank higher, y = -1 that x2 should."""
    reduction = chosen(reduction, size_average, reduce)
    if not input1.dim() == input2.dim() == target.dim():
        raise RuntimeError(
            f"margin_ranking_loss: inputs and target should be of the same dimension, found {input1.shape}, {input2.shape} "
            f"and target {target.shape}"
        )
    return reduced((-target * (input1 - input2) + margin).clamp_min(0), reduction)
