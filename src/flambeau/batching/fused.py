"""Operations that have a fused loop for one tensor and are plain formulas for many: normalization, losses, attention.

The formulas run on wrappers, so each step finds its own batching rule and its own derivative.
"""

from __future__ import annotations

from collections.abc import Callable

from flambeau import dtypes

COMPOSED: dict[str, Callable] = {}


def composed(name: str) -> Callable:
    """Register the formula of an operation."""

    def register(function: Callable) -> Callable:
        COMPOSED[name] = function
        return function

    return register


@composed("_layer_norm")
def _(input, weight, bias, eps):
    centred = input - (mean := input.mean(-1, keepdim=True))
    rstd = ((centred * centred).mean(-1, keepdim=True) + eps).rsqrt()
    return centred * rstd * weight + bias, mean, rstd


@composed("_rms_norm")
def _(input, weight, eps):
    rstd = ((input * input).mean(-1, keepdim=True) + eps).rsqrt()
    return input * rstd * weight, rstd


@composed("_channel_rows")
def _(parameter, groups, places):
    return parameter.unsqueeze(-1).expand(-1, places).reshape(groups, -1)


@composed("_channel_statistics")
def _(input, eps):
    dims = (0, *range(2, input.dim()))
    mean = input.mean(dims, keepdim=True)
    var = ((input - mean) ** 2).mean(dims, keepdim=True)
    return mean, (var + eps).rsqrt(), var


@composed("_nll_loss")
def _(input, target, weight, ignore_index, reduction):
    dim = 1 if input.dim() > 1 else 0
    at = target.to(dtypes.int64)
    at = at.unsqueeze(1) if dim else at.reshape((1,))
    counted = at != ignore_index
    at = at.masked_fill(~counted, 0)
    share = counted.to(input.dtype)
    if weight is not None:
        share = share * weight[at]
    loss = (-input.gather(dim, at) * share).squeeze(dim)
    if reduction == "none":
        return loss
    return loss.sum() / share.sum() if reduction == "mean" else loss.sum()


@composed("_cross_entropy")
def _(input, target, weight, ignore_index, reduction, smoothing, kept):
    dim = 1 if input.dim() > 1 else 0
    logs = input.log_softmax(dim)
    hard = COMPOSED["_nll_loss"](logs, target, weight, ignore_index, reduction)
    if not smoothing:
        return hard
    at = target.unsqueeze(dim)
    weights = None if weight is None else weight.reshape((-1, *(1,) * (input.dim() - dim - 1)))
    smooth = (-logs if weights is None else -logs * weights).sum(dim).masked_fill(target == ignore_index, 0)
    if reduction != "none":
        counted = (target != ignore_index).to(input.dtype)
        total = counted.sum() if weight is None else (weight[at.masked_fill(at == ignore_index, 0).squeeze(dim)] * counted).sum()
        smooth = smooth.sum() / total if reduction == "mean" else smooth.sum()
    return (1 - smoothing) * hard + smoothing / input.shape[dim] * smooth


@composed("_attention")
def _(query, key, value, mask, scale, causal):
    from flambeau.ops.attention import _as_it_stands

    out = _as_it_stands(query, key, value, mask, 0.0, causal, scale)
    return out, out.detach()
