"""Operations that have a fused loop for one tensor and are plain formulas for many: normalization, losses, attention.

The formulas run on wrappers, so each step finds its own batching rule and its own derivative.
"""

from __future__ import annotations

from collections.abc import Callable

from flambeau import dtypes
from flambeau.kernels.loops.language import Loop
from flambeau.ops.attention import _as_it_stands
from flambeau.ops.cross_entropy import by_operations as by_operations_of_logits
from flambeau.ops.linear import linear
from flambeau.ops.normalization import _grouped, as_rows
from flambeau.ops.rowwise import LOOPED, by_operations
from flambeau.ops.similarity import _as_it_stands as _directions

COMPOSED: dict[str, Callable] = {}


def composed(name: str) -> Callable:
    """Register the formula of an operation."""

    def register(function: Callable) -> Callable:
        COMPOSED[name] = function
        return function

    return register


@composed("_cosine")
def _(x1, x2, dim, eps):
    return _directions(x1, x2, dim, eps)


def _by_its_formula(loop: Loop) -> Callable:
    n = len(loop.loads)

    def formula(**given):
        values = list(given.values())
        return by_operations(loop, values[:n], values[n:])

    return formula


COMPOSED |= {name: _by_its_formula(loop) for name, loop in LOOPED.items()}


# -- normalization ---------------------------------------------------------------------------------------------------------


@composed("_by_channel")
def _(input, weight, bias, eps, groups, rounding, running=None):
    x, _, weights, dims = _grouped(input, groups)
    mean = x.mean(dims, keepdim=True)
    var = ((x - mean) ** 2).mean(dims, keepdim=True)
    rstd = (var + eps).rsqrt()
    out = _learned((x - mean) * rstd, weight, bias, weights)
    flat = (input.shape[0], groups) if groups else (input.shape[1],)
    return out.reshape(tuple(input.shape)), *(s.reshape(flat) for s in (mean, rstd, var))


@composed("_by_channel_backward")
def _(g, input, weight, mean, rstd, groups):
    loop, given, dims, _ = as_rows(g, input, weight, mean, rstd, groups)
    of_input, *sums = by_operations(loop, given, dim=dims)
    return of_input.reshape(tuple(input.shape)), *(a.sum(0).reshape(-1) for a in sums)


@composed("_by_running")
def _(input, mean, var, weight, bias, eps):
    shape = (1, input.shape[1], *(1,) * (input.dim() - 2))
    return _learned((input - mean.reshape(shape)) * (var + eps).rsqrt().reshape(shape), weight, bias, shape)


def _learned(y, weight, bias, shape):
    y = y if weight is None else y * weight.reshape(shape)
    return y if bias is None else y + bias.reshape(shape)


# -- reading at points -----------------------------------------------------------------------------------------------------


@composed("_mixed_at")
def _(input, places, weights):
    return (_read_at(input, places) * weights.unsqueeze(1)).sum(2)


@composed("_spread_to")
def _(g, places, weights, size):
    parts, shape = g.unsqueeze(2) * weights.unsqueeze(1), (*g.shape[:2], -1)
    at = places.to(dtypes.int64).unsqueeze(1).expand(parts.shape).reshape(shape)
    return g.new_zeros((*g.shape[:2], size + 1)).scatter_add(2, at % (size + 1), parts.reshape(shape))[..., :size]


@composed("_along_taps")
def _(g, input, places):
    return (_read_at(input, places) * g.unsqueeze(2)).sum(1)


def _read_at(input, places):
    """(N, C, S), (N, T, P) -> (N, C, T, P), zero where the place is -1."""
    (samples, channels), (taps, points) = input.shape[:2], places.shape[1:]
    at = places.to(dtypes.int64).clamp(0).reshape((samples, 1, -1)).expand((samples, channels, -1))
    return input.gather(2, at).reshape((samples, channels, taps, points)).where((places >= 0).unsqueeze(1), 0.0)


# -- losses ----------------------------------------------------------------------------------------------------------------


@composed("_nll_loss")
def _(input, target, weight, ignore_index, reduction, kept=None):
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


composed("_cross_entropy")(by_operations_of_logits)


@composed("_linear_cross_entropy")
def _(input, linear_weight, linear_bias, target, weight, ignore_index, reduction, rows):
    logits = linear(input, linear_weight, linear_bias)
    return COMPOSED["_nll_loss"](logits.log_softmax(1), target, weight, ignore_index, reduction)


# -- attention -------------------------------------------------------------------------------------------------------------


@composed("_attention")
def _(query, key, value, mask, scale, causal):
    out = _as_it_stands(query, key, value, mask, 0.0, causal, scale)
    return out, out.detach()
