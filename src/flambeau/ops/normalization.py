"""Normalization: numbers shifted to mean 0 and scaled to variance 1, over rows, groups of channels or whole batches, then a learned scale and shift.

    layer_norm       over the trailing dimensions of each sample
    rms_norm         the same, without taking the mean away
    group_norm       over groups of channels of each sample        instance_norm   over each channel of each sample
    batch_norm       over each channel of the whole batch, remembering running averages

Layer and group norm are one row program forward and one backward (kernels/rows.py). Their mean and rstd = 1 / sqrt(var + eps) are results
like any other, with derivatives of their own, so formulas in which they occur can be differentiated again. Half precision is normalised in
float32 and rounded once.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from flambeau import dtypes
from flambeau.kernels import channels, rowwise
from flambeau.ops.declare import composite, on_arrays, pointwise
from flambeau.ops.formats import channels_last
from flambeau.ops.padding import constant_pad_nd

inner = functools.partial(on_arrays, public=False, method=False, autocast="float32")
block = functools.partial(pointwise, public=False, method=False, dtypes=("float32", "float64"), complex=False)


@block()
def _standardized(input, mean, rstd):
    """(x - mean) * rstd."""
    return (input - mean) * rstd


# -- over the last dimension -----------------------------------------------------------------------------------------------


@inner(returns="out mean rstd", grad_name="NativeLayerNormBackward0")
def _layer_norm(input, weight, bias, eps):
    """((x - mean) * rstd * weight + bias, mean, rstd). (*, N); weight and bias repeat to that -> (*, N), (*, 1), (*, 1)."""
    return rowwise.layer_norm(input, weight, bias, eps)


@_layer_norm.meta
def _(input, weight, bias, eps):
    return [(input.shape, input.dtype), *[((*input.shape[:-1], 1), input.dtype)] * 2]


@_layer_norm.joint
def _(grads, input, weight, mean, rstd, bias_shape, needs):
    grad, of_mean, of_rstd = grads
    found = {"input": None}
    if grad is not None:
        found["input"] = _layer_norm_backward(grad, input, weight, mean, rstd) if needs["input"] else None
        found["weight"] = _weighted(grad, input, mean, rstd).sum_to_size(tuple(weight.shape)) if needs["weight"] else None
        found["bias"] = grad.sum_to_size(bias_shape) if needs["bias"] else None
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


@inner(grad_name="NativeLayerNormBackwardBackward0")
def _layer_norm_backward(g, input, weight, mean, rstd):
    """rstd * (h - mean(h) - y * mean(h * y)) with h = g * weight and y = (x - mean) * rstd."""
    return rowwise.layer_norm_backward(g, input, weight, mean, rstd)


@_layer_norm_backward.joint
def _(grad, g, input, weight, mean, rstd, result):
    """With K(h) the formula above, which is symmetric: grad K(h) = h K(grad). What remains is the derivative by y and rstd."""
    back = _layer_norm_backward(grad, input, weight.new_ones(input.shape[-1]), mean, rstd)
    y, h = _standardized(input, mean, rstd), g * weight
    of_y = -rstd * (grad * (h * y).mean(-1, keepdim=True) + h * (grad * y).mean(-1, keepdim=True))
    of_x = of_y * rstd
    of_rstd = (of_y * (input - mean)).sum(-1, keepdim=True) + (grad * result).sum(-1, keepdim=True) / rstd
    of_mean = -of_x.sum(-1, keepdim=True)
    return {"g": back * weight, "input": of_x, "weight": (g * back).sum_to_size(tuple(weight.shape)), "mean": of_mean, "rstd": of_rstd}


@inner()
def _weighted(g, input, mean, rstd):
    """g * (x - mean) * rstd: what each element adds to the gradient of the weight."""
    return rowwise.weighted(g, input, mean, rstd)


@_weighted.joint
def _(grad, g, input, mean, rstd):
    both = grad * g
    of_x = both * rstd
    of_rstd = (both * (input - mean)).sum(-1, keepdim=True)
    return {"g": _weighted(grad, input, mean, rstd), "input": of_x, "mean": -of_x.sum(-1, keepdim=True), "rstd": of_rstd}


@inner(returns="out rstd", grad_name="FusedRmsNormBackward0")
def _rms_norm(input, weight, eps):
    """(x * rstd * weight, rstd) with rstd = 1 / sqrt(mean(x^2) + eps). (*, N), (N) -> (*, N), (*, 1)."""
    return rowwise.rms_norm(input, weight, eps)


@_rms_norm.meta
def _(input, weight, eps):
    return [(input.shape, input.dtype), ((*input.shape[:-1], 1), input.dtype)]


@_rms_norm.joint
def _(grads, input, weight, rstd, needs):
    grad, of_rstd = grads
    found = {"input": None}
    if grad is not None:
        found["input"] = _rms_norm_backward(grad, input, weight, rstd) if needs["input"] else None
        found["weight"] = (grad * (input * rstd)).sum_to_size(tuple(weight.shape)) if needs["weight"] else None
    if needs["input"]:
        found["input"] = _plus(found["input"], *_through_statistics(None, of_rstd, input, 0, rstd))
    return found


@inner(grad_name="FusedRmsNormBackwardBackward0")
def _rms_norm_backward(g, input, weight, rstd):
    """rstd * (h - y * mean(h * y)) with h = g * weight and y = x * rstd."""
    return rowwise.rms_norm_backward(g, input, weight, rstd)


@_rms_norm_backward.joint
def _(grad, g, input, weight, rstd, result):
    back = _rms_norm_backward(grad, input, weight.new_ones(input.shape[-1]), rstd)
    y, h = input * rstd, g * weight
    of_y = -rstd * (grad * (h * y).mean(-1, keepdim=True) + h * (grad * y).mean(-1, keepdim=True))
    of_rstd = (of_y * input).sum(-1, keepdim=True) + (grad * result).sum(-1, keepdim=True) / rstd
    return {"g": back * weight, "input": of_y * rstd, "weight": (g * back).sum_to_size(tuple(weight.shape)), "rstd": of_rstd}


_weighted.meta(lambda g, input, mean, rstd: (input.shape, input.dtype))
_layer_norm_backward.meta(lambda g, input, weight, mean, rstd: (input.shape, input.dtype))
_rms_norm_backward.meta(lambda g, input, weight, rstd: (input.shape, input.dtype))


# -- layer norm and rms norm -----------------------------------------------------------------------------------------------


@composite(method=False)
def native_layer_norm(input, normalized_shape, weight, bias, eps):
    """(output, mean, rstd) of `layer_norm`; mean and rstd have the leading dimensions, then ones."""
    out, *found = _layer_normalized(input, normalized_shape, weight, bias, eps)
    axes = 1 if isinstance(normalized_shape, int) else len(normalized_shape)
    numbers, stored = (*input.shape[: input.dim() - axes], *(1,) * axes), _stored_dtype(input, weight, bias)
    return out, *(s.detach().reshape(numbers).to(stored) for s in found)


def _layer_normalized(input, normalized_shape, weight, bias, eps):
    """(output, mean, rstd), the last two as they are computed."""
    shape = _check_normalized("layer_norm", input, normalized_shape, weight, bias)
    x, n, whole = _wide(input), math.prod(shape), input._array.shape
    w, b = (x.new_full((n,), missing) if p is None else _checked_dtype(p, x) for p, missing in ((weight, 1), (bias, 0)))
    if len(shape) > 1:
        x, w, b = x.reshape((*whole[: -len(shape)], n)), w.reshape(n), b.reshape(n)
    out, mean, rstd = _layer_norm(x, w, b, eps)
    out = out if len(shape) == 1 else out.reshape(whole)
    return out if out.dtype is input.dtype else out.to(input.dtype), mean, rstd


@composite(method=False)
def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-05, cudnn_enable=True):
    """(x - mean) / sqrt(var + eps) * weight + bias, over the trailing dimensions `normalized_shape`. Same shape."""
    return _layer_normalized(input, normalized_shape, weight, bias, eps)[0]


@composite(name="nn.functional.layer_norm", method=False)
def functional_layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-05):
    """(x - mean) / sqrt(var + eps) * weight + bias, over the trailing dimensions `normalized_shape`. Same shape."""
    return _layer_normalized(input, normalized_shape, weight, bias, eps)[0]


@composite(method=False, aliases=("nn.functional.rms_norm",))
def rms_norm(input, normalized_shape, weight=None, eps=None):
    """x / sqrt(mean(x^2) + eps) * weight over the trailing dimensions `normalized_shape`; eps, if not given, is the dtype's. Same shape."""
    shape = _check_normalized("rms_norm", input, normalized_shape, weight, None)
    if input.is_complex():
        return _complex_rms_norm(input, len(shape), weight, eps)
    x, n = _wide(input), math.prod(shape)
    eps = dtypes.finfo(x.dtype).eps if eps is None else eps
    w = x.new_ones(n) if weight is None else _checked_dtype(weight, x).reshape(n)
    out, _ = _rms_norm(x.reshape((*input.shape[: input.dim() - len(shape)], n)), w, eps)
    return out.reshape(tuple(input.shape)).to(input.dtype)


def _complex_rms_norm(input, axes: int, weight, eps):
    """x^2 is the square of the complex number, as PyTorch has it."""
    eps = dtypes.finfo(input.dtype.to_real()).eps if eps is None else eps
    out = input * ((input * input).mean(tuple(range(-axes, 0)), keepdim=True) + eps).rsqrt()
    return out if weight is None else out * weight


def _check_normalized(name: str, input, shape, weight, bias) -> tuple[int, ...]:
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if not shape:
        raise RuntimeError(
            f"{name}: Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, but got {shape}"
        )
    for what, given in (("weight", weight), ("bias", bias)):
        if given is not None and given._array.shape != shape:
            raise RuntimeError(
                f"Expected {what} to be of same shape as normalized_shape, but got {what} of shape {tuple(given.shape)} and "
                f"normalized_shape = {shape} ({name})"
            )
    if input._array.shape[-len(shape) :] != shape:
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


@composite(method=False)
def native_group_norm(input, weight, bias, N, C, HxW, group, eps):
    """(output, mean, rstd) of `group_norm` for an input of N samples, C channels and HxW places; mean and rstd are (N, group)."""
    _check_group_norm(input, C, group, weight, bias)
    x, stored = _wide(input), _stored_dtype(input, weight, bias)
    each = C // max(group, 1)
    rows = [_channel_rows(p, x, group, each, HxW, missing) for p, missing in ((weight, 1), (bias, 0))]
    out, mean, rstd = _layer_norm(x.reshape((N, group, each * HxW)), *rows, eps)
    out = out.reshape(tuple(input.shape)).to(input.dtype)
    return out, mean.reshape((N, group)).to(stored), rstd.reshape((N, group)).to(stored)


def _channel_rows(parameter, like, groups: int, each: int, places: int, missing: int):
    """One number for each channel as rows of groups: (groups, each * places)."""
    if parameter is None:
        return like.new_full((each * places,), missing)
    return _checked_dtype(parameter, like).reshape((groups, each, 1)).expand((groups, each, places)).reshape((groups, each * places))


def _check_group_norm(input, channels: int, groups: int, weight, bias) -> None:
    if groups <= 0:
        raise RuntimeError(f"Expected num groups to be greater than 0, got {groups}")
    if channels % groups:
        raise RuntimeError(
            "Expected number of channels in input to be divisible by num_groups, but got input of shape "
            f"{list(input.shape)} and num_groups={groups}"
        )
    for what, given in (("weight", weight), ("bias", bias)):
        if given is not None and tuple(given.shape) != (channels,):
            raise RuntimeError(
                f"Expected {what} to be a vector of size equal to the number of channels in input, but got {what} of shape "
                f"{list(given.shape)} and input of shape {list(input.shape)}"
            )
    _check_float("group_norm", input)


def _group_norm(input, num_groups, weight, bias, eps):
    if input.dim() < 2:
        raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received {input.dim()}")
    samples, channels = input.shape[:2]
    _check_group_norm(input, channels, num_groups, weight, bias)
    places = math.prod(input.shape[2:])
    out = native_group_norm(input, weight, bias, samples, channels, places, num_groups, eps)[0]
    return _in_format_of(input, out)


def _in_format_of(input, out):
    """Images whose channels lie side by side stay so."""
    strides = input.stride()
    return out.to(memory_format=channels_last) if input.dim() == 4 and strides[1] == 1 < strides[3] else out


@composite(method=False)
def group_norm(input, num_groups, weight=None, bias=None, eps=1e-05, cudnn_enabled=True):
    """Each of `num_groups` groups of channels of each sample to mean 0 and variance 1, then * weight + bias by channel. (N, C, *)."""
    return _group_norm(input, num_groups, weight, bias, eps)


@composite(name="nn.functional.group_norm", method=False)
def functional_group_norm(input, num_groups, weight=None, bias=None, eps=1e-05):
    """Each of `num_groups` groups of channels of each sample to mean 0 and variance 1, then * weight + bias by channel. (N, C, *)."""
    if input.dim() >= 2 and num_groups > 0:
        _check_several([input.shape[0] * input.shape[1] // num_groups, num_groups, *input.shape[2:]])
    return _group_norm(input, num_groups, weight, bias, eps)


def _check_several(size) -> None:
    """One number has no variance."""
    if size[0] * math.prod(size[2:]) == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {list(size)}")


# -- batch norm ------------------------------------------------------------------------------------------------------------


@inner(returns="out mean rstd var", grad_name="NativeBatchNormBackward0")
def _batch_norm(input, weight, bias, eps, rounding):
    """((x - mean) * rstd * weight + bias, mean, rstd, var) by channel. (N, C, *), (C,), (C,) -> (N, C, *), then (C,) each.

    rounding: the dtype of half precision in which the statistics are kept, as PyTorch does, or None
    """
    mean, var = channels.moments(input)
    if rounding is not None:
        n, mean = input.size // input.shape[1], _rounded(mean, rounding)
        var = _rounded(_rounded(var * n, rounding) / n, rounding)
    with np.errstate(all="ignore"):
        rstd = (var + eps) ** -0.5
    if rounding is not None:
        rstd = _rounded(rstd, rounding)
    out = channels.normalized(input, mean, rstd * weight, bias)
    return out, *(a.astype(input.dtype) for a in (mean, rstd, var))


def _rounded(numbers, dtype):
    return numbers.astype(dtype.numpy).astype("float64")


def _channel_shape(input) -> tuple[int, ...]:
    return (1, input.shape[1], *(1,) * (len(input.shape) - 2))


@_batch_norm.meta
def _(input, weight, bias, eps, rounding):
    return [(input.shape, input.dtype), *[((input.shape[1],), input.dtype)] * 3]


@_batch_norm.joint
def _(grads, input, weight, mean, rstd, needs):
    grad, of_mean, of_rstd, _ = grads
    found = {"input": None}
    if grad is not None:
        found["input"], found["weight"], found["bias"] = _batch_norm_backward(grad, input, weight, mean, rstd)
    if needs["input"]:
        wide = [s if s is None else s.reshape(_channel_shape(input)) for s in (of_mean, of_rstd, mean, rstd)]
        found["input"] = _plus(found["input"], *_through_statistics(*wide[:2], input, *wide[2:]))
    return found


@inner(returns="input weight bias", grad_name="NativeBatchNormBackwardBackward0")
def _batch_norm_backward(g, input, weight, mean, rstd):
    """How a gradient reaches the three: weight * rstd * (g - mean(g) - y * mean(g * y)), sum(g * y), sum(g), with y = (x - mean) * rstd."""
    total, along = channels.products(g, input, mean)
    n, scale = max(input.size // max(input.shape[1], 1), 1), rstd.astype("float64")
    of_weight, factor = along * scale, weight * scale
    of_input = channels.recentred(g, input, mean, factor, factor * scale * of_weight / n, factor * total / n)
    return of_input, of_weight.astype(input.dtype), total.astype(input.dtype)


@_batch_norm_backward.meta
def _(g, input, weight, mean, rstd):
    return [(input.shape, input.dtype), *[((input.shape[1],), input.dtype)] * 2]


@_batch_norm_backward.joint
def _(grads, g, input, weight, mean, rstd, results):
    """K(h) = rstd * (h - mean(h) - y * mean(h * y)) is symmetric, as in `_layer_norm_backward`."""
    shape, dims = _channel_shape(input), (0, *range(2, input.dim()))
    mean, rstd, weight = (a.reshape(shape) for a in (mean, rstd, weight))
    grad, of_weight, of_bias = (a if a is None or i == 0 else a.reshape(shape) for i, a in enumerate(grads))
    y, n = _standardized(input, mean, rstd), input.numel() / max(input.shape[1], 1)

    def total(a):
        return a.sum(dims, keepdim=True)

    of_g, of_y, weighted, of_rstd = [], [], None, None
    if grad is not None:
        back = rstd * (grad - total(grad) / n - y * (total(grad * y) / n))
        of_g.append(back * weight)
        of_y.append(-rstd * weight * (grad * (total(g * y) / n) + g * (total(grad * y) / n)))
        weighted, of_rstd = total(g * back).reshape(-1), total(grad * results[0]) / rstd
    if of_weight is not None:
        of_g.append(of_weight * y)
        of_y.append(of_weight * g)
    if of_bias is not None:
        of_g.append(of_bias.expand(tuple(input.shape)))
    found, through = {"g": _plus(*of_g), "weight": weighted}, _plus(*of_y)
    if through is not None:
        of_x = through * rstd
        of_rstd = _plus(of_rstd, total(through * (input - mean)))
        found |= {"input": of_x, "mean": -total(of_x).reshape(-1), "rstd": of_rstd.reshape(-1)}
    return found


@inner(grad_name="NativeBatchNormBackward0")
def _normalized(input, mean, scale, shift):
    """(x - mean) * scale + shift by channel, with statistics that are no function of x. (N, C, *), (C,) three times -> (N, C, *)."""
    return channels.normalized(input, mean, scale, shift)


_normalized.meta(lambda input, mean, scale, shift: (input.shape, input.dtype))
_normalized.derivative(
    input=lambda grad, scale: grad * scale.reshape(_channel_shape(grad)),
    scale=lambda grad, input, mean: (grad * (input - mean.reshape(_channel_shape(grad)))).sum((0, *range(2, grad.dim()))),
    shift=lambda grad: grad.sum((0, *range(2, grad.dim()))),
)


@composite(method=False)
def native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps):
    """(output, mean, rstd) of `batch_norm`; the statistics are empty unless `training`."""
    if not input.numel():  # of any number of dimensions
        return input.clone(), *[input.new_empty(0)] * 2
    _check_batch_norm(input, weight, bias, running_mean, running_var, training)
    stored = _stored_dtype(input, weight, bias, running_mean, running_var)
    x, channels = _wide(input), input.shape[1]
    w = x.new_ones(channels) if weight is None else _checked_dtype(weight, x)
    b = x.new_zeros(channels) if bias is None else _checked_dtype(bias, x)
    if training:
        out, mean, rstd, var = _batch_norm(x, w, b, float(eps), stored if stored is not x.dtype else None)
        _remember(running_mean, running_var, mean, var, x.numel() / channels, momentum)
        saved = [mean.detach().to(stored), rstd.detach().to(stored)]
    else:
        rstd = (_checked_dtype(running_var, x).detach() + eps).rsqrt()
        out = _normalized(x, _checked_dtype(running_mean, x).detach(), rstd * w, b)
        saved = [x.new_empty(0, dtype=stored)] * 2
    return out if out.dtype is input.dtype else out.to(input.dtype), *saved


def _remember(running_mean, running_var, mean, var, n: float, momentum: float) -> None:
    """Move the running averages towards this batch's; the variance as an estimate of the whole population's."""
    for running, now in ((running_mean, mean), (running_var, var * (n / (n - 1) if n > 1 else math.nan))):
        if running is not None:
            kept = running.detach()
            kept.copy_(kept * (1 - momentum) + now.detach() * momentum)


def _check_batch_norm(input, weight, bias, running_mean, running_var, training) -> None:
    if input.dim() < 2:
        raise RuntimeError(f"batch_norm: expected an input of at least 2 dimensions (N, C, *), got shape {tuple(input.shape)}")
    if not training and (running_mean is None or running_var is None):
        raise RuntimeError("Expected running_mean and running_var to be defined when training=False")
    channels = input.shape[1]
    for what, given in (("weight", weight), ("bias", bias), ("running_mean", running_mean), ("running_var", running_var)):
        if given is not None and given.numel() != channels:
            raise RuntimeError(f"{what} should contain {channels} elements not {given.numel()}: one for each channel")
    _check_float("batch_norm", input)


@composite(method=False)
def batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled=True):
    """Each channel of the batch to mean 0 and variance 1 (or by the running statistics), then * weight + bias. (N, C, *)."""
    return native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)[0]


@composite(name="nn.functional.batch_norm", method=False)
def functional_batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-05):
    """Each channel of the batch to mean 0 and variance 1 (or by the running statistics), then * weight + bias. (N, C, *)."""
    if training:
        _check_several(input.shape)
    return native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)[0]


# -- instance norm and local response norm ---------------------------------------------------------------------------------


@composite(method=False)
def instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, cudnn_enabled=True):
    """Each channel of each sample to mean 0 and variance 1, then * weight + bias by channel. (N, C, *).

    A batch norm of one sample with N * C channels; running statistics are averaged over the samples.
    """
    if not use_input_stats and (running_mean is None or running_var is None):
        raise RuntimeError("Expected running_mean and running_var to be defined when use_input_stats is false")
    samples, channels, *places = input.shape
    repeated = [None if p is None else p.repeat(samples) for p in (weight, bias, running_mean, running_var)]
    flat = input.contiguous().reshape((1, samples * channels, *places))
    out = native_batch_norm(flat, *repeated, use_input_stats, momentum, eps)[0]
    for running, moved in ((running_mean, repeated[2]), (running_var, repeated[3])):
        if running is not None and use_input_stats:
            running.detach().copy_(moved.reshape((samples, channels)).mean(0))
    return out.reshape(tuple(input.shape))


@composite(name="nn.functional.instance_norm", method=False)
def functional_instance_norm(
    input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-05
):
    """Each channel of each sample to mean 0 and variance 1, then * weight + bias by channel. (N, C, *)."""
    if use_input_stats and math.prod(input.shape[2:]) == 1:
        raise ValueError(f"Expected more than 1 spatial element when training, got input size {tuple(input.shape)}")
    return instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps)


@composite(name="nn.functional.local_response_norm", method=False)
def local_response_norm(input, size, alpha=1e-4, beta=0.75, k=1.0):
    """x / (k + alpha * mean of the squares of `size` neighbouring channels)^beta. (N, C, *)."""
    if input.dim() < 3:
        raise ValueError(f"Expected 3D or higher dimensionality input (got {input.dim()} dimensions)")
    if not input.numel():
        return input
    around = (*(0, 0) * (input.dim() - 2), size // 2, (size - 1) // 2)
    total = constant_pad_nd(input * input, around).unfold(1, size, 1).sum(-1)
    squares = total / size if input.is_floating_point() else total.div(size, rounding_mode="trunc")
    return input / (squares * alpha + k) ** beta
