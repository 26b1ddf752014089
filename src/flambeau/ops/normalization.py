"""Normalization: numbers shifted to mean 0 and scaled to variance 1, over rows, groups of channels or whole batches, then a learned scale and shift.

    layer_norm       over the trailing dimensions of each sample
    rms_norm         the same, without taking the mean away
    group_norm       over groups of channels of each sample        instance_norm   over each channel of each sample
    batch_norm       over each channel of the whole batch, remembering running averages

Norms over rows are one loop forward and one backward (kernels/loops/). Their mean and rstd = 1 / sqrt(var + eps) are results
like any other, with derivatives of their own, so formulas in which they occur can be differentiated again. Half precision is normalised in
float32 and rounded once.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from flambeau import dtypes
from flambeau.kernels import arrays, layout
from flambeau.kernels.language import expr as e
from flambeau.kernels.loops import channels
from flambeau.kernels.loops.language import Loop, declare, extent, line_total, pick, total, total_of_lines, unrounded
from flambeau.ops import specs
from flambeau.ops.arithmetic import _lerp_by_number, mul
from flambeau.ops.asking import is_recorded
from flambeau.ops.batch_norm import by_library
from flambeau.ops.copying import in_kind, row_major
from flambeau.ops.declare import composite, on_arrays
from flambeau.ops.padding import constant_pad_nd
from flambeau.ops.rowwise import gradients, looped
from flambeau.ops.views import _unsafe_view

inner = functools.partial(on_arrays, public=False, method=False)


# -- over the last dimension: the loops ------------------------------------------------------------------------------------


def _normal(x, eps):
    mean = total(x) / extent
    off = x - mean
    rstd = e.rsqrt(total(off * off) / extent + eps)
    return off * rstd, mean, rstd


def _layer(x, weight, bias, eps):
    normal, mean, rstd = _normal(x, eps)
    return normal * weight + bias, mean, rstd


def _layer_back(grad, x, weight, mean, rstd):
    """rstd * (h - mean(h) - y * mean(h * y)) with h = grad * weight and y = (x - mean) * rstd."""
    scaled, normal = grad * weight, (x - mean) * rstd
    return rstd * (scaled - total(scaled) / extent - normal * (total(scaled * normal) / extent))


def _rms(x, weight, eps):
    rstd = e.rsqrt(total(x * x) / extent + eps)
    return x * rstd * weight, rstd


def _rms_back(grad, x, weight, rstd):
    """rstd * (h - y * mean(h * y)) with h = grad * weight and y = x * rstd."""
    scaled, normal = grad * weight, x * rstd
    return rstd * (scaled - normal * (total(scaled * normal) / extent))


WIDE = ("float32", "float64")  # half precision is normalised in float32, by casts, where a gradient is wanted
LAYER = declare(Loop("layer_norm", _layer, "ri i i", "ri r r", 1, WIDE))
LAYER_PLAIN = declare(Loop("layer_norm_plain", _normal, "ri", "ri r r", 1, WIDE))
LAYER_ALONE = declare(Loop("layer_norm_alone", lambda *given: _layer(*given)[0], "ri i i", options=1))
LAYER_BARE = declare(Loop("layer_norm_bare", lambda x, eps: _normal(x, eps)[0], "ri", options=1))
LAYER_BACK = declare(Loop("layer_norm_backward", _layer_back, "ri ri i r r", dtypes=WIDE))
LAYER_ALL = declare(Loop("layer_norm_gradients", lambda g, x, *rest: (_layer_back(g, x, *rest), g * ((x - rest[1]) * rest[2]), g),
                         "ri ri i r r", "ri i i", dtypes=WIDE))  # fmt: skip
PLAIN_BACK = declare(Loop("layer_norm_plain_backward", lambda g, x, mean, rstd: _layer_back(g, x, 1, mean, rstd), "ri ri r r", dtypes=WIDE))
WEIGHTED = declare(Loop("weighted", lambda grad, x, mean, rstd: grad * ((x - mean) * rstd), "ri ri r r", dtypes=WIDE))
RMS = declare(Loop("rms_norm", _rms, "ri i", "ri r", 1, WIDE))
RMS_BACK = declare(Loop("rms_norm_backward", _rms_back, "ri ri i r", dtypes=WIDE))
RMS_ALL = declare(
    Loop("rms_norm_gradients", lambda g, x, w, rstd: (_rms_back(g, x, w, rstd), g * (x * rstd)), "ri ri i r", "ri i", dtypes=WIDE)
)


# -- and their operations ----------------------------------------------------------------------------------------------------


@looped(LAYER, returns="out mean rstd", grad_name="NativeLayerNormBackward0")
def _layer_norm(input, weight, bias, eps):
    """((x - mean) * rstd * weight + bias, mean, rstd). (*, N), (N), (N) -> (*, N), (*, 1), (*, 1)."""


@_layer_norm.joint
def _(grads, input, weight, mean, rstd, needs):
    grad, of_mean, of_rstd = grads
    found = {"input": None}
    if grad is not None and all(needs.values()):
        found = dict(zip(("input", "weight", "bias"), _layer_norm_gradients(grad, input, weight, mean, rstd), strict=True))
    elif grad is not None:
        found["input"] = _layer_norm_backward(grad, input, weight, mean, rstd) if needs["input"] else None
        found["weight"] = _weighted(grad, input, mean, rstd).sum_to_size(tuple(weight.shape)) if needs["weight"] else None
        found["bias"] = grad.sum_to_size(tuple(weight.shape)) if needs["bias"] else None
    if needs["input"]:
        found["input"] = _plus(found["input"], *_through_statistics(of_mean, of_rstd, input, mean, rstd))
    return found


def _through_statistics(of_mean, of_rstd, input, mean, rstd):
    """d mean / dx = 1 / n, d rstd / dx = -rstd^3 (x - mean) / n."""
    n = input.numel() / max(rstd.numel(), 1)
    yield None if of_mean is None else (of_mean / n).expand(tuple(input.shape))
    yield None if of_rstd is None else (input - mean) * (of_rstd * rstd**3 / -n)


def _plus(*terms):
    """The sum of those that are there."""
    terms = [t for t in terms if t is not None]
    return functools.reduce(lambda a, b: a + b, terms) if terms else None


@looped(LAYER_BACK, grad_name="NativeLayerNormBackwardBackward0")
def _layer_norm_backward(g, input, weight, mean, rstd):
    """rstd * (h - mean(h) - y * mean(h * y)) with h = g * weight and y = (x - mean) * rstd."""


@looped(LAYER_PLAIN, returns="out mean rstd", grad_name="NativeLayerNormBackward0")
def _layer_norm_plain(input, eps):
    """((x - mean) * rstd, mean, rstd). (*, N) -> (*, N), (*, 1), (*, 1)."""


@_layer_norm_plain.joint
def _(grads, input, mean, rstd):
    grad, of_mean, of_rstd = grads
    back = None if grad is None else _layer_norm_plain_backward(grad, input, mean, rstd)
    return {"input": _plus(back, *_through_statistics(of_mean, of_rstd, input, mean, rstd))}


@looped(PLAIN_BACK, grad_name="NativeLayerNormBackwardBackward0")
def _layer_norm_plain_backward(g, input, mean, rstd):
    """rstd * (g - mean(g) - y * mean(g * y)) with y = (x - mean) * rstd."""


@looped(WEIGHTED)
def _weighted(g, input, mean, rstd):
    """g * (x - mean) * rstd: what each element adds to the gradient of the weight."""


@looped(LAYER_ALL, returns="dx dweight dbias", grad_name="NativeLayerNormBackwardBackward0")
def _layer_norm_gradients(g, input, weight, mean, rstd):
    """The gradients of input, weight and bias in one go: `_layer_norm_backward`, and the sums of `_weighted` and g over the rows."""


@looped(RMS, returns="out rstd", grad_name="FusedRmsNormBackward0")
def _rms_norm(input, weight, eps):
    """(x * rstd * weight, rstd) with rstd = 1 / sqrt(mean(x^2) + eps). (*, N), (N) -> (*, N), (*, 1)."""


@_rms_norm.joint
def _(grads, input, weight, rstd, needs):
    grad, of_rstd = grads
    found = {"input": None}
    if grad is not None and all(needs.values()):
        found = dict(zip(("input", "weight"), _rms_norm_gradients(grad, input, weight, rstd), strict=True))
    elif grad is not None:
        found["input"] = _rms_norm_backward(grad, input, weight, rstd) if needs["input"] else None
        found["weight"] = (grad * (input * rstd)).sum_to_size(tuple(weight.shape)) if needs["weight"] else None
    if needs["input"]:
        found["input"] = _plus(found["input"], *_through_statistics(None, of_rstd, input, 0, rstd))
    return found


@looped(RMS_BACK, grad_name="FusedRmsNormBackwardBackward0")
def _rms_norm_backward(g, input, weight, rstd):
    """rstd * (h - y * mean(h * y)) with h = g * weight and y = x * rstd."""


@looped(RMS_ALL, returns="dx dweight", grad_name="FusedRmsNormBackwardBackward0")
def _rms_norm_gradients(g, input, weight, rstd):
    """The gradients of input and weight in one go: `_rms_norm_backward`, and the sum of g * y over the rows."""


# Differentiated again, all these are what follows from their formulas.
_layer_norm_backward.joint(lambda grad, g, input, weight, mean, rstd: _again(LAYER_BACK, [grad], g, input, weight, mean, rstd))
_layer_norm_plain_backward.joint(lambda grad, g, input, mean, rstd: _again(PLAIN_BACK, [grad], g, input, None, mean, rstd))
_weighted.joint(lambda grad, g, input, mean, rstd: _again(WEIGHTED, [grad], g, input, None, mean, rstd))
_layer_norm_gradients.joint(lambda grads, g, input, weight, mean, rstd: _again(LAYER_ALL, grads, g, input, weight, mean, rstd))
_rms_norm_backward.joint(lambda grad, g, input, weight, rstd: _again(RMS_BACK, [grad], g, input, weight, None, rstd))
_rms_norm_gradients.joint(lambda grads, g, input, weight, rstd: _again(RMS_ALL, grads, g, input, weight, None, rstd))


def _again(loop: Loop, grads, *operands) -> dict:
    names = [name for name, x in zip(("g", "input", "weight", "mean", "rstd"), operands, strict=True) if x is not None]
    return dict(zip(names, gradients(loop, grads, [x for x in operands if x is not None]), strict=True))


# -- layer norm and rms norm -----------------------------------------------------------------------------------------------


@composite(method=False, autocast="cpu given, cuda float32")
def native_layer_norm(input, normalized_shape, weight, bias, eps):
    """(output, mean, rstd) of `layer_norm`; mean and rstd have the leading dimensions, then ones."""
    out, *found = _layer_normalized(input, normalized_shape, weight, bias, eps)
    axes = 1 if isinstance(normalized_shape, int) else len(normalized_shape)
    numbers, stored = (*input.shape[: input.dim() - axes], *(1,) * axes), _stored_dtype(input, weight, bias)
    return out, *(s.detach().reshape(numbers).to(stored) for s in found)


def _layer_normalized(input, normalized_shape, weight, bias, eps):
    """(output, mean, rstd), the last two as they are computed."""
    shape = _check_normalized("layer_norm", input, normalized_shape, weight, bias)
    x, n, whole = _wide(input), math.prod(shape), tuple(input.shape)
    w, b = (x.new_full((n,), missing) if p is None else _checked_dtype(p, x) for p, missing in ((weight, 1), (bias, 0)))
    if len(shape) > 1:
        x, w, b = x.reshape((*whole[: -len(shape)], n)), w.reshape(n), b.reshape(n)
    out, mean, rstd = _layer_norm(x, w, b, eps)
    out = out if len(shape) == 1 else _unsafe_view(out, whole)
    return out if out.dtype is input.dtype else out.to(input.dtype), mean, rstd


def _normalized_alone(input, normalized_shape, weight, bias, eps):
    """The first of these; where no gradient is wanted, without the others."""
    last = (input.shape[-1],) if input.dim() else ()
    parameters = [p for p in (weight, bias) if p is not None]
    simple = (
        last
        and tuple(normalized_shape) == last
        and len(parameters) != 1
        and all(p.shape == last and p.dtype is input.dtype for p in parameters)
    )
    if simple and input.dtype.is_floating_point:
        if not is_recorded(input, *parameters):
            return _layer_norm_bare(input, eps) if weight is None else _layer_norm_alone(input, weight, bias, eps)
        if weight is None and input.dtype.itemsize > 2:
            return _layer_norm_plain(input, eps)[0]
    return _layer_normalized(input, normalized_shape, weight, bias, eps)[0]


@looped(LAYER_ALONE, differentiable=False, shown="layer_norm")
def _layer_norm_alone(input, weight, bias, eps):
    """(x - mean) * rstd * weight + bias. (*, N), (N), (N) -> (*, N)."""


@looped(LAYER_BARE, differentiable=False, shown="layer_norm")
def _layer_norm_bare(input, eps):
    """(x - mean) * rstd. (*, N) -> (*, N)."""


@composite(method=False, grad_name="NativeLayerNormBackward0", autocast="cpu given, cuda float32")
def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-05, cudnn_enable=True):
    """(x - mean) / sqrt(var + eps) * weight + bias, over the trailing dimensions `normalized_shape`. Same shape."""
    return _normalized_alone(input, normalized_shape, weight, bias, eps)


@composite(name="nn.functional.layer_norm", method=False, grad_name="NativeLayerNormBackward0", autocast="cpu given, cuda float32")
def functional_layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-05):
    """(x - mean) / sqrt(var + eps) * weight + bias, over the trailing dimensions `normalized_shape`. Same shape."""
    return _normalized_alone(input, normalized_shape, weight, bias, eps)


def _rms_name(input, *rest, **options) -> str | None:
    return "MulBackward0" if input.element_size() > 2 else None


@composite(method=False, aliases=("nn.functional.rms_norm",), grad_name=_rms_name, autocast="cpu given, cuda float32")
def rms_norm(input, normalized_shape, weight=None, eps=None):
    """x / sqrt(mean(x^2) + eps) * weight over the trailing dimensions `normalized_shape`; eps, if not given, is the dtype's. Same shape."""
    shape = _check_normalized("rms_norm", input, normalized_shape, weight, None)
    if input.is_complex():
        return _rms_step_by_step(input, len(shape), weight, eps)
    x, n = _wide(input), math.prod(shape)
    if layout.looks_channels_last(tuple(input.shape), input.stride()):  # and so does the result
        return _rms_step_by_step(x, len(shape), None if weight is None else weight.to(x.dtype), eps).to(input.dtype)
    eps = dtypes.finfo(x.dtype).eps if eps is None else eps
    if len(shape) == 1 and weight is not None and x is input:
        return _rms_norm(x, weight.to(x.dtype), eps)[0]
    w = x.new_ones(n) if weight is None else weight.to(x.dtype).reshape(n)
    out, _ = _rms_norm(x.reshape((*input.shape[: input.dim() - len(shape)], n)), w, eps)
    return _unsafe_view(out, tuple(input.shape)).to(input.dtype)


def _rms_step_by_step(input, axes: int, weight, eps):
    """In any order of memory, and of complex numbers: there x^2 is the square of the complex number, as PyTorch has it."""
    eps = dtypes.finfo(input.dtype.to_real()).eps if eps is None else eps
    out = input * ((input * input).mean(tuple(range(-axes, 0)), keepdim=True) + eps).rsqrt()
    return out if weight is None else out * weight


def _check_normalized(name: str, input, shape, weight, bias) -> tuple[int, ...]:
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if not shape:
        raise RuntimeError(f"{name}: Expected normalized_shape to be at least 1-dimensional, found {shape}")
    for what, given in (("weight", weight), ("bias", bias)):
        if given is not None and given.shape != shape:
            raise RuntimeError(f"{name}: {what} must have the shape of normalized_shape, {shape}, found {tuple(given.shape)}")
    if input.shape[-len(shape) :] != shape:
        raise RuntimeError(
            f"Given normalized_shape={list(shape)}, expected input with shape [*, {', '.join(map(str, shape))}], but got input of size"
            f"{list(input.shape)}: {name} normalises the trailing dimensions"
        )
    if name != "rms_norm" or not input.is_complex():
        _check_float(name, input)
    return shape


def _check_float(name: str, input) -> None:
    if not input.is_floating_point():
        raise NotImplementedError(f'"{name}" not implemented for {input.dtype}: it normalises floating-point numbers. Try x.float()')


def _wide(x):
    """Half precision as float32."""
    return x.to(dtypes.float32) if x is not None and x.dtype.is_floating_point and x.dtype.itemsize == 2 else x


def _stored_dtype(input, *parameters):
    """The dtype of statistics: the input's, but float32 where half precision meets float32 parameters."""
    mixed = any(p is not None and p.dtype is not input.dtype for p in parameters)
    return dtypes.float32 if mixed and input.dtype.itemsize == 2 else input.dtype


def _checked_dtype(parameter, like):
    wide = _wide(parameter)
    if wide.dtype is not like.dtype:
        raise RuntimeError(f"expected scalar type {like.dtype} but found {parameter.dtype}: weight and bias have the dtype of the input")
    return wide


# -- group norm ------------------------------------------------------------------------------------------------------------


@composite(method=False, grad_name="NativeGroupNormBackward0")
def native_group_norm(input, weight, bias, N, C, HxW, group, eps):
    """(output, mean, rstd) of `group_norm` for an input of N samples, C channels and HxW places; mean and rstd are (N, group)."""
    if _is_plain(input, weight, bias) and group > 0 and C % group == 0 and input.shape[1] == C:
        return _by_channel(input, weight, bias, float(eps), group, None)[:3]
    _check_group_norm(input, C, group, weight, bias)
    stored = _stored_dtype(input, weight, bias)
    if not input.numel():
        return _scaled_nothing(input, weight, bias), *[input.new_zeros((N, group), dtype=stored) for _ in range(2)]
    x = row_major(_wide(input)).reshape((N, C, HxW))
    out, mean, rstd, _ = _by_channel(x, *_scale_and_shift(x, weight, bias), float(eps), group, None)
    return in_kind(_unsafe_view(out, tuple(input.shape)), input).to(input.dtype), mean.to(stored), rstd.to(stored)


def _scaled_nothing(input, weight, bias):
    """An empty batch is empty again; what was learned is part of its history, so that backward gives it gradients of zero and not None."""
    out = input.clone()
    out = out if weight is None else out * weight.sum()
    return out if bias is None else out + bias.sum()


def _scale_and_shift(x, weight, bias):
    """The learned numbers of each channel, as they are computed with."""
    return [None if p is None else _checked_dtype(p, x) for p in (weight, bias)]


def _check_group_norm(input, channels: int, groups: int, weight, bias) -> None:
    if groups <= 0:
        raise RuntimeError(f"group_norm: there must be groups, found num_groups={groups}")
    if channels % groups:
        raise RuntimeError(
            "Expected number of channels in input to be divisible by num_groups, but got input of shape "
            f"{list(input.shape)} and num_groups={groups}"
        )
    for what, given in (("weight", weight), ("bias", bias)):
        if given is not None and tuple(given.shape) != (channels,):
            raise RuntimeError(
                f"group_norm: {what} needs one number for each channel of the input {list(input.shape)}, found {list(given.shape)}"
            )
    _check_float("group_norm", input)


def _group_norm(input, num_groups, weight, bias, eps):
    if input.dim() < 2:
        raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received {input.dim()}")
    samples, channels, *places = input.shape
    return native_group_norm(input, weight, bias, samples, channels, math.prod(places), num_groups, eps)[0]


@composite(method=False, grad_name="NativeGroupNormBackward0", autocast="cpu given, cuda float32")
def group_norm(input, num_groups, weight=None, bias=None, eps=1e-05, cudnn_enabled=True):
    """Each of `num_groups` groups of channels of each sample to mean 0 and variance 1, then * weight + bias by channel. (N, C, *)."""
    return _group_norm(input, num_groups, weight, bias, eps)


@composite(name="nn.functional.group_norm", method=False, grad_name="NativeGroupNormBackward0", autocast="cpu given, cuda float32")
def functional_group_norm(input, num_groups, weight=None, bias=None, eps=1e-05):
    """Each of `num_groups` groups of channels of each sample to mean 0 and variance 1, then * weight + bias by channel. (N, C, *)."""
    shape = tuple(input.shape)
    if len(shape) >= 2 and num_groups > 0:
        _check_several((shape[0] * shape[1] // num_groups, num_groups, *shape[2:]))
    return _group_norm(input, num_groups, weight, bias, eps)


def _check_several(size) -> None:
    """One number has no variance."""
    if size[0] * math.prod(size[2:]) == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, found {list(size)}. Try a larger batch, or eval()")


# -- over channels: the loops --------------------------------------------------------------------------------------------------


def _moments(x):
    """(mean, variance) of a row in one walk. Numbers are taken from the row's first one, so that a large mean costs no digits."""
    first = pick(0, e.const(0, "i64"))
    start = e.where(e.eq(first - first, 0), first, 0)  # one that is not finite would make NaN of infinity
    off = x - start
    mean = unrounded(total(off)) / extent
    var = unrounded(total(off * off)) / extent - mean * mean
    return e.as_T(start + mean), e.as_T(e.where(var < 0, 0, var))  # NaN stays


def _scaled(x, mean, scale, shift):
    return (x - mean) * scale + shift


def _by_row(x, weight, bias, eps):
    mean, var = _moments(x)
    rstd = e.rsqrt(var + eps)
    return _scaled(x, mean, rstd * weight, bias), mean, rstd, var


def _recentred(grad, x, mean, scale, slope, shift):
    return grad * scale - (x - mean) * slope - shift


def _by_row_back(of_weights, of_row):
    """rstd * (h - mean(h) - y * mean(h * y)) with h = grad * weight, y = (x - mean) * rstd, and what grad * y and grad add up to for each weight."""

    def formula(grad, x, weight, mean, rstd):
        of_weight, of_bias = of_weights(grad * (x - mean)) * rstd, of_weights(grad)
        along, all_h = (of_row(of * weight) / extent for of in (of_weight, of_bias))
        return _recentred(grad, x, mean, rstd * weight, rstd * rstd * along, rstd * all_h), of_weight, of_bias

    return formula


by_channel = functools.partial(Loop, dtypes=WIDE, lines=True)
NORM = declare(by_channel("norm", _by_row, "ri rj rj", "ri r r r", 1))
NORM_BACK = declare(by_channel("norm_backward", _by_row_back(total, lambda sums: sums), "ri ri r r r", "ri r r"))
GROUP_BACK = declare(by_channel("norm_backward_grouped", _by_row_back(line_total, total_of_lines), "ri ri rj r r", "ri rj rj"))
BY_RUNNING = declare(by_channel("by_running", lambda x, mean, var, weight, bias, eps: _scaled(x, mean, e.rsqrt(var + eps) * weight, bias),
                                "ri r r r r", options=1))  # fmt: skip
# Step by step, for channels that are few and large: what is found of each sample's part of them is added up, and goes into results.
MOMENTS = declare(by_channel("moments", _moments, "ri", "r r"))
SCALED = declare(by_channel("scaled", _scaled, "ri r r r"))
PRODUCTS = declare(by_channel("products", lambda grad, x, mean: (total(grad * (x - mean)), total(grad)), "ri ri r", "r r"))
RECENTRED = declare(by_channel("recentred", _recentred, "ri ri r r r r"))


# -- batch norm and group norm -----------------------------------------------------------------------------------------------


@inner(returns="out mean rstd var", shown="batch_norm", grad_name="NativeBatchNormBackward0")
def _by_channel(input, weight, bias, eps, groups, rounding, running=None):
    """((x - mean) * rstd * weight + bias, mean, rstd, var). (N, C, *), (C,), (C,) -> (N, C, *), then three times (C,), or (N, groups).

    groups    0: statistics of each channel over the batch; else of each group of channels of each sample
    rounding  the dtype of half precision in which the statistics are kept, as PyTorch does, or None
    running   arrays "mean" and "var", and "momentum"; "done" is added where they have been moved towards these statistics
    """
    weight = _constant(input, 1) if weight is None else weight
    bias = _constant(input, 0) if bias is None else bias
    if rounding is None and not channels.are_few(input, groups):
        return channels.run(NORM, (input, weight, bias), (eps,), groups, running=running)
    count = input.shape[1]
    if rounding is None:
        mean, var = (a.astype("float64") for a in channels.run(MOMENTS, (input,), (), count))
        var = var.mean(0) + ((mean - mean.mean(0)) ** 2).mean(0)
        mean = mean.mean(0)
    else:
        n, (_, mean, _, var) = input.size // count, channels.run(NORM, (input, weight, bias), (eps,))
        mean, var = _rounded(mean, rounding), _rounded(_rounded(var * n, rounding) / n, rounding)
    with np.errstate(all="ignore"):
        rstd = (var + eps) ** -0.5
    if rounding is not None:
        rstd = _rounded(rstd, rounding)
    mean, rstd, var, scale = (a.astype(input.dtype) for a in (mean, rstd, var, rstd * weight))
    return channels.run(SCALED, (input, mean, scale, bias), (), count if input.flags.c_contiguous else 0), mean, rstd, var


@_by_channel.work
def _(input, weight, bias, eps, groups, rounding, running):
    if rounding is not None or running is not None or channels.are_few(input, groups):
        return None
    return _given_numbers(NORM, (input,), weight, bias, eps, groups)


def _given_numbers(loop, operands, weight, bias, eps, groups):
    """A loop made ready, with ones for a weight and zeros for a bias that are not there."""
    w, b = (_constant(operands[0], missing) if p is None else p for p, missing in ((weight, 1), (bias, 0)))
    found = channels.ready(loop, (*operands, w, b), (eps,), groups)
    if found is None or (weight is None) != (bias is None):
        return None
    return found if weight is not None else lambda *operands: found(*operands, w, b)


def _constant(input, value: int):
    """A number for each channel."""
    found = arrays.empty_beside(input, input.shape[1:2], input.dtype)
    arrays.fill(found, value)
    return found


def _rounded(numbers, dtype):
    return numbers.astype(dtype.numpy).astype("float64")


def _statistics_shape(input, groups: int) -> tuple[int, ...]:
    return (input.shape[0], groups) if groups else (input.shape[1],)


@_by_channel.meta
def _(input, weight, bias, eps, groups, rounding, running=None):
    return [specs.like(input), *[(_statistics_shape(input, groups), input.dtype)] * 3]


@_by_channel.joint
def _(grads, input, weight, mean, rstd, groups, needs):
    grad, of_mean, of_rstd, _ = grads
    found = {"input": None}
    if grad is not None:
        weight = input.new_ones(input.shape[1]) if weight is None else weight
        found["input"], found["weight"], found["bias"] = _by_channel_backward(grad, input, weight, mean, rstd, groups)
    if needs["input"] and (of_mean is not None or of_rstd is not None):
        x, stats, _, _ = _grouped(input, groups)
        wide = (s if s is None else s.reshape(stats) for s in (of_mean, of_rstd))
        through = _plus(*_through_statistics(*wide, x, mean.reshape(stats), rstd.reshape(stats)))
        found["input"] = _plus(found["input"], through.reshape(tuple(input.shape)))
    return found


def _grouped(input, groups: int):
    """(x with dimensions sample, group, channel, place; the shape of statistics; of weights; what a statistic is taken over)."""
    samples, all_channels = input.shape[:2]
    parts = groups or all_channels
    x = input.reshape((samples, parts, all_channels // parts, -1))
    return x, (samples if groups else 1, parts, 1, 1), (1, parts, all_channels // parts, 1), (2, 3) if groups else (0, 2, 3)


@inner(returns="input weight bias", grad_name="NativeBatchNormBackwardBackward0")
def _by_channel_backward(g, input, weight, mean, rstd, groups):
    """How a gradient reaches the three: rstd * (h - mean(h) - y * mean(h * y)), sum(g * y), sum(g); h = g * weight, y = (x - mean) * rstd."""
    if not channels.are_few(input, groups):
        of_input, *sums = channels.run(GROUP_BACK if groups else NORM_BACK, (g, input, weight, mean, rstd), (), groups)
        return of_input, *(a if a.ndim == 1 else a.sum(0, dtype="float64").astype(input.dtype) for a in sums)
    count, n = input.shape[1], input.size // input.shape[1]
    along, total = (a.sum(0, dtype="float64") for a in channels.run(PRODUCTS, (g, input, mean), (), count))
    along *= rstd
    numbers = rstd * weight, rstd * rstd * weight * along / n, rstd * weight * total / n
    of_input = channels.run(RECENTRED, (g, input, mean, *(a.astype(input.dtype) for a in numbers)), (), count)
    return of_input, *(a.astype(input.dtype) for a in (along, total))


_by_channel_backward.work(
    lambda g, input, weight, mean, rstd, groups: (
        None if groups or channels.are_few(input, groups) else channels.ready(NORM_BACK, (g, input, weight, mean, rstd))
    )
)
_by_channel_backward.meta(lambda g, input, weight, mean, rstd, groups: [specs.like(input), *[((input.shape[1],), input.dtype)] * 2])


@_by_channel_backward.joint
def _(grads, g, input, weight, mean, rstd, groups):
    loop, given, dims, weights = as_rows(g, input, weight, mean, rstd, groups)
    flows = [a if a is None else a.reshape(tuple(shape)) for a, shape in zip(grads, (given[1].shape, weights, weights), strict=True)]
    found = gradients(loop, flows, given, dims)
    named = {"g": g, "input": input, "weight": weight, "mean": mean, "rstd": rstd}
    return {
        name: None if flow is None else flow.expand(tuple(rows.shape)).reshape(tuple(of.shape))
        for (name, of), rows, flow in zip(named.items(), given, found, strict=True)
    }


def as_rows(g, input, weight, mean, rstd, groups: int):
    """(the loop of `_by_channel_backward`, its operands with dimensions sample, group, channel, place, those of a row, the shape of weights)."""
    x, stats, weights, dims = _grouped(input, groups)
    given = [g.reshape(tuple(x.shape)), x, weight.reshape(weights), mean.reshape(stats), rstd.reshape(stats)]
    return GROUP_BACK if groups else NORM_BACK, given, dims, weights


@inner(grad_name="NativeBatchNormBackward0", meta=specs.like)
def _by_running(input, mean, var, weight, bias, eps):
    """(x - mean) / sqrt(var + eps) * weight + bias with statistics that are no function of x. (N, C, *), (C,) four times -> (N, C, *)."""
    weight, bias = (_constant(input, missing) if p is None else p for p, missing in ((weight, 1), (bias, 0)))
    return channels.run(BY_RUNNING, (input, mean, var, weight, bias), (eps,), _by_sample(input))


def _by_sample(input) -> int:
    """As many groups as there are channels, if each channel of each sample can be a row: there are more of those."""
    return input.shape[1] if input.ndim > 2 and input.flags.c_contiguous else 0


_by_running.work(
    lambda input, mean, var, weight, bias, eps: _given_numbers(BY_RUNNING, (input, mean, var), weight, bias, eps, _by_sample(input))
)
_by_running.derivative(
    input=lambda grad, var, weight, eps: grad * _scale_of(var, weight, eps).reshape(_channel_shape(grad)),
    weight=lambda grad, input, mean, var, eps: _over_channels(grad * (input - mean.reshape(_channel_shape(grad)))) * (var + eps).rsqrt(),
    bias=lambda grad: _over_channels(grad),
)


def _scale_of(var, weight, eps):
    found = (var + eps).rsqrt()
    return found if weight is None else found * weight


def _over_channels(x):
    return x.sum((0, *range(2, x.dim())))


def _channel_shape(input) -> tuple[int, ...]:
    return (1, input.shape[1], *(1,) * (len(input.shape) - 2))


@composite(method=False, out="same", autocast="given")
def native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps):
    """(output, mean, rstd) of `batch_norm`; the statistics are empty unless `training`."""
    out, *found = _batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)
    stored = _stored_dtype(input, weight, bias, running_mean, running_var)
    return out, *[s.detach().to(stored) for s in found or [input.new_empty(0), input.new_empty(0)]]


def _batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, mixed=False):
    """(output, mean, rstd) as they are computed, or (output,) where there are no statistics of this batch."""
    known = training or not (running_mean is None or running_var is None)
    if known and _is_plain(input, weight, bias, running_mean, running_var):
        x, w, b, rounding = input, weight, bias, None
    elif not input.numel():  # of any number of dimensions
        return (_scaled_nothing(input, weight, bias),)
    elif training and (found := by_library(input, weight, bias, running_mean, running_var, momentum, eps)) is not None:
        return found
    else:
        _check_batch_norm(input, weight, bias, running_mean, running_var, training)
        if not mixed:
            _check_mixture(input, weight, bias, running_mean, running_var)
        x = _wide(input)
        geometry = tuple(x.shape), x.stride()  # a size of 1 may keep channels that lie last from looking so
        x = x if layout.looks_channels_last(*geometry) or layout.is_channels_last(*geometry) else x.contiguous()
        w, b = _scale_and_shift(x, weight, bias)
        stored = x.dtype if x.dtype is input.dtype else _stored_dtype(input, weight, bias, running_mean, running_var)
        rounding = stored if stored is not x.dtype else None
    if training:
        running = _to_move(x, running_mean, running_var, momentum)
        out, mean, rstd, var = _by_channel(x, w, b, float(eps), 0, rounding, running)
        if running is not None and "done" in running:
            running_mean._bump(), running_var._bump()
        else:
            _remember(running_mean, running_var, mean, var, x.numel() / x.shape[1], momentum)
        found = [mean, rstd]
    else:
        running = [r if r.dtype is x.dtype else _checked_dtype(r, x) for r in (running_mean, running_var)]
        out, found = _by_running(x, *[r.detach() if r.requires_grad else r for r in running], w, b, float(eps)), []
    return out if out.dtype is input.dtype else out.to(input.dtype), *found


def _check_mixture(input, *numbers) -> None:
    found = {n.dtype for n in numbers if n is not None}
    if found - {input.dtype} and (input.dtype.itemsize != 2 or found != {dtypes.float32}):
        raise RuntimeError(
            f"mixed dtype: expected scalar type {input.dtype} as the input has, for weight, bias and running averages alike "
            f"(or torch.float32 for all of them if the input has half precision), but found {', '.join(sorted(map(str, found)))}"
        )


def _is_plain(input, *numbers) -> bool:
    """Row-major and not empty, with a number for each channel, all of one dtype, float32 or float64: nothing to ask or to adapt."""
    x = input._array
    if not channels.is_plain(x):
        return False
    shape, dtype = x.shape[1:2], x.dtype
    return all([n is None or (n._array.shape == shape and n._array.dtype == dtype) for n in numbers])


def _to_move(x, running_mean, running_var, momentum: float) -> dict | None:
    """Running averages for the kernel that finds the statistics, where there is one that moves them."""
    if running_mean is None or running_var is None or not arrays.on_gpu(x._array):
        return None
    known = all([arrays.on_gpu(r._array) and r._array.shape == x._array.shape[1:2] for r in (running_mean, running_var)])
    return {"mean": running_mean._array, "var": running_var._array, "momentum": momentum} if known else None


def _remember(running_mean, running_var, mean, var, n: float, momentum: float) -> None:
    """Move the running averages towards this batch's; the variance as an estimate of the whole population's."""
    if running_mean is not None:
        _follow(running_mean, mean, 1.0, momentum)
    if running_var is not None:
        _follow(running_var, var, n / (n - 1) if n > 1 else math.nan, momentum)


def _follow(running, batch, factor: float, momentum: float) -> None:
    _moved.call_inplace(running, batch if batch.dtype is running.dtype else batch.detach().to(running.dtype), factor, momentum)


@inner(onto=arrays.copy, differentiable=False, shown="lerp")
def _moved(running, batch, factor, momentum):
    """running + momentum * (factor * batch - running)."""
    batch = batch if factor == 1 else arrays.run(mul.kernel, (batch, factor), (), batch.dtype, batch.dtype)
    arrays.run(_lerp_by_number.kernel, (running, batch), (momentum,), running.dtype, running.dtype, out=running)


def _check_batch_norm(input, weight, bias, running_mean, running_var, training) -> None:
    if input.dim() < 2:
        raise RuntimeError(f"batch_norm: expected an input of at least 2 dimensions (N, C, *), got shape {tuple(input.shape)}")
    if not training and (running_mean is None or running_var is None):
        raise RuntimeError("batch_norm: without training it uses running_mean and running_var, which are None")
    channels = input.shape[1]
    for what, given in (("running_mean", running_mean), ("running_var", running_var), ("weight", weight), ("bias", bias)):
        if given is not None and given.numel() != channels:
            raise RuntimeError(f"{what} should contain {channels} elements not {given.numel()}: one for each channel")
    _check_float("batch_norm", input)


@composite(method=False, autocast="given")
def batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled=True):
    """Each channel of the batch to mean 0 and variance 1 (or by the running statistics), then * weight + bias. (N, C, *)."""
    return _batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)[0]


@composite(name="nn.functional.batch_norm", method=False, autocast="given")
def functional_batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-05):
    """Each channel of the batch to mean 0 and variance 1 (or by the running statistics), then * weight + bias. (N, C, *)."""
    if training:
        _check_several(tuple(input.shape))
    if eps < 0 or (training and not eps):
        raise ValueError(
            f"batch_norm: eps must be positive{' during training' if training else ' or 0, in other words non-negative'}, found {eps}"
        )
    return _batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)[0]


# -- instance norm and local response norm ---------------------------------------------------------------------------------


@composite(method=False, grad_name="ViewBackward0", autocast="given")
def instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, cudnn_enabled=True):
    """Each channel of each sample to mean 0 and variance 1, then * weight + bias by channel. (N, C, *).

    A batch norm of one sample with N * C channels; running statistics are averaged over the samples.
    """
    if not use_input_stats and (running_mean is None or running_var is None):
        raise RuntimeError("instance_norm: without use_input_stats it uses running_mean and running_var, which are None")
    if running_mean is None and running_var is None and _is_plain(input, weight, bias):
        return _by_channel(input, weight, bias, float(eps), input.shape[1], None)[0]  # each channel a group of its own
    samples, channels, *places = input.shape
    stored = dtypes.float32 if input.dtype.itemsize == 2 else input.dtype  # running averages may have any dtype here
    numbers = weight, bias, *[r if r is None else r.to(stored) for r in (running_mean, running_var)]
    repeated = [None if p is None else p.repeat(samples) for p in numbers]
    flat = input.contiguous().reshape((1, samples * channels, *places))
    out = _batch_norm(flat, *repeated, use_input_stats, momentum, eps, mixed=True)[0]
    for running, moved in ((running_mean, repeated[2]), (running_var, repeated[3])):
        if running is not None and use_input_stats:
            running.detach().copy_(moved.reshape((samples, channels)).mean(0))
    return out.reshape(tuple(input.shape))


@composite(name="nn.functional.instance_norm", method=False, grad_name="ViewBackward0", autocast="given")
def functional_instance_norm(
    input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-05
):
    """Each channel of each sample to mean 0 and variance 1, then * weight + bias by channel. (N, C, *)."""
    if use_input_stats and math.prod(input.shape[2:]) == 1:
        raise ValueError(f"Expected more than 1 spatial element when training, found {tuple(input.shape)}")
    return instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps)


@composite(name="nn.functional.local_response_norm", method=False)
def local_response_norm(input, size, alpha=1e-4, beta=0.75, k=1.0):
    """x / (k + alpha * mean of the squares of `size` neighbouring channels)^beta. (N, C, *)."""
    if input.dim() < 3:
        raise ValueError(f"local_response_norm: expected (N, C, *), at least 3 dimensions, found {input.dim()}")
    if not input.numel():
        return input
    around = (*(0, 0) * (input.dim() - 2), size // 2, (size - 1) // 2)
    total = constant_pad_nd(input * input, around).unfold(1, size, 1).sum(-1)
    squares = total / size if input.is_floating_point() else total.div(size, rounding_mode="trunc")
    return input / (squares * alpha + k) ** beta
