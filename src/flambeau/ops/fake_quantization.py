"""Quantized and at once dequantized: what a network computes during training that is to know what 8 bits will do to it.

    y = (q - zero_point) scale,   q = round(x / scale) + zero_point, within quant_min and quant_max

The gradient passes where q was within its bounds, as if nothing had been rounded (the straight-through estimator).
"""

from __future__ import annotations

import numpy as np

from flambeau import dtypes
from flambeau.kernels import arrays
from flambeau.ops import specs
from flambeau.ops.declare import composite, on_arrays


@on_arrays(name="_fake_quantize", public=False, method=False, returns="output mask")
def _fake_quantize(input, scale, zero_point, quant_min, quant_max):
    """(y, whether q was within bounds). scale and zero_point broadcast with the input."""
    xp = arrays.module_of(input)
    x = input.astype(np.float32) if input.dtype.itemsize == 2 else input
    whole = not hasattr(zero_point, "dtype") or zero_point.dtype.kind != "f"
    with np.errstate(all="ignore"):
        q = x * (np.float32(1) / xp.asarray(scale, np.float32))
        q = xp.rint(q) + zero_point if whole else xp.rint(q + zero_point)
    q = xp.where(xp.isnan(q), quant_min - 1, q)  # PyTorch's NaN becomes the least integer
    inside = (q >= quant_min) & (q <= quant_max)
    y = (xp.clip(q, quant_min, quant_max) - zero_point).astype(np.float32) * xp.asarray(scale, np.float32)
    return arrays.cast(y, input.dtype), inside


_fake_quantize.meta(lambda input, **_: [specs.like(input), (input.shape, "bool", specs.like(input)[2])])
_fake_quantize.derivative(input=lambda grads, results: grads[0] * results[1])


@composite(method=False, autocast="cpu float32")
def fake_quantize_per_tensor_affine(input, scale, zero_point, quant_min, quant_max):
    """y for all elements alike. scale and zero_point are numbers, or tensors of one element."""
    _check("fake_quantize_per_tensor_affine", input, quant_min, quant_max)
    scale, zero = (x.item() if hasattr(x, "_array") else x for x in (scale, zero_point))
    _check_zero(zero, zero, quant_min, quant_max)
    return _fake_quantize(input, float(np.float32(scale)), zero, quant_min, quant_max)[0]


@composite(method=False)
def fake_quantize_per_channel_affine(input, scale, zero_point, axis, quant_min, quant_max):
    """y with a scale and a zero point for each index of one dimension: tensors (C,), the zero points int32, float32 or float16."""
    _check("fake_quantize_per_channel_affine", input, quant_min, quant_max)
    if zero_point.dtype not in (dtypes.int32, dtypes.float32, dtypes.float16):
        raise RuntimeError(f"Zero-point must be Int32 or Float, Half too, found {zero_point.dtype}. Try zero_point.to(torch.int32)")
    if not -input.dim() <= axis < input.dim():
        raise IndexError(f"Dimension out of range: `axis` is {axis}, input has {input.dim()} dimensions")
    if axis < 0:
        raise RuntimeError(f"`axis` must be one of the {input.dim()} dimensions of input, found {axis}")
    if tuple(scale.shape) != (input.shape[axis],) or tuple(zero_point.shape) != (input.shape[axis],):
        found = f"{tuple(scale.shape)} and {tuple(zero_point.shape)} for {input.shape[axis]} channels"
        raise RuntimeError(f"scale and zero-point need one number for each slice of the input: found {found}")
    if not zero_point.is_floating_point() and zero_point.numel():
        _check_zero(zero_point.min().item(), zero_point.max().item(), quant_min, quant_max)
    shape = tuple(-1 if d == axis else 1 for d in range(input.dim()))
    return _fake_quantize(input, scale.detach().reshape(shape), zero_point.detach().reshape(shape), quant_min, quant_max)[0]


def _check(name: str, input, quant_min: int, quant_max: int) -> None:
    if not input.is_floating_point():
        raise NotImplementedError(f"{name}: not implemented for {input.dtype}: expected a floating dtype. Try x.float()")
    if quant_min > quant_max:
        raise RuntimeError(f"`quant_min` may not exceed `quant_max`, found {quant_min} and {quant_max}")


def _check_zero(least: float, greatest: float, quant_min: int, quant_max: int) -> None:
    if least < quant_min or greatest > quant_max:
        raise RuntimeError(
            f"`zero_point` must be between `quant_min` and `quant_max`: {quant_min} to {quant_max}, found {least} to {greatest}"
        )
