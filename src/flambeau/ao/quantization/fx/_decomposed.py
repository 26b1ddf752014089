"""torch.ao.quantization.fx._decomposed: quantization as functions of plain tensors, integers beside their scales and zero points.

    torch.ops.quantized_decomposed.quantize_per_token(x, scales, zero_points, -128, 127, torch.int8)

Importing this file makes the operators. A scale belongs to the whole tensor, a channel, a token (a row of the last dimension) or a group of a row.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from flambeau import dtypes
from flambeau.library import Library
from flambeau.ops import OPS
from flambeau.tensor import Tensor

Pair = tuple[Tensor, Tensor]
KERNELS: dict[str, Callable] = {}  # by schema


def operator(schema: str) -> Callable[[Callable], Callable]:
    """A decorator: the function behind torch.ops.quantized_decomposed.<schema>."""

    def register(function: Callable) -> Callable:
        KERNELS[schema] = function
        return function

    return register


def _wide(input: Tensor) -> Tensor:
    return input.float() if input.dtype in (dtypes.float16, dtypes.bfloat16) else input


def _float32(input: Tensor, what: str) -> Tensor:
    input = _wide(input)
    if input.dtype is not dtypes.float32:
        raise AssertionError(f"Expecting {what} to have dtype torch.float32, but got dtype: {input.dtype}")
    return input


def _along(values: Tensor, input: Tensor, axis: int) -> Tensor:
    """One value for each channel, so that it broadcasts."""
    return values.view(tuple([-1 if i == axis % input.dim() else 1 for i in range(input.dim())]))


# -- the whole tensor ----------------------------------------------------------------------------------------------------------------------


@operator("quantize_per_tensor(Tensor input, float scale, int zero_point, int quant_min, int quant_max, ScalarType dtype) -> Tensor")
@operator(
    "quantize_per_tensor.tensor(Tensor input, Tensor scale, Tensor zero_point, int quant_min, int quant_max, ScalarType dtype) -> Tensor"
)
@operator(
    "quantize_per_tensor.tensor2(Tensor input, Tensor scale, Tensor zero_point, Tensor quant_min, Tensor quant_max, ScalarType dtype) -> Tensor"
)
def quantize_per_tensor(input: Tensor, scale: Any, zero_point: Any, quant_min: Any, quant_max: Any, dtype: dtypes.dtype) -> Tensor:
    """round(input / scale) + zero_point, within the limits."""
    return ((_float32(input, "input") * (1.0 / scale)).round() + zero_point).clamp(quant_min, quant_max).to(dtype)


@operator(
    "dequantize_per_tensor(Tensor input, float scale, int zero_point, int quant_min, int quant_max, ScalarType dtype, *, ScalarType? out_dtype=None) -> Tensor"
)
@operator(
    "dequantize_per_tensor.tensor(Tensor input, Tensor scale, Tensor zero_point, int quant_min, int quant_max, ScalarType dtype, *, "
    "ScalarType? out_dtype=None) -> Tensor"
)
@operator(
    "dequantize_per_tensor.tensor2(Tensor input, Tensor scale, Tensor zero_point, Tensor quant_min, Tensor quant_max, ScalarType dtype, *, "
    "ScalarType? out_dtype=None) -> Tensor"
)
def dequantize_per_tensor(
    input: Tensor, scale: Any, zero_point: Any, quant_min: Any, quant_max: Any, dtype: dtypes.dtype, *, out_dtype=None
) -> Tensor:
    """(input - zero_point) * scale."""
    _check_dtype(input, dtype)
    return (input.to(out_dtype or dtypes.float32) - zero_point) * scale


def _check_dtype(input: Tensor, dtype: dtypes.dtype) -> None:
    if input.dtype is not dtype:
        raise AssertionError(f"Expecting input to have dtype {dtype}, but got {input.dtype}")


# -- channels ------------------------------------------------------------------------------------------------------------------------------


@operator(
    "quantize_per_channel(Tensor input, Tensor scales, Tensor zero_points, int axis, int quant_min, int quant_max, ScalarType dtype) -> Tensor"
)
def quantize_per_channel(
    input: Tensor, scales: Tensor, zero_points: Tensor, axis: int, quant_min: int, quant_max: int, dtype: dtypes.dtype
) -> Tensor:
    """The same with a scale for every index of a dimension."""
    steps = (_float32(input, "input") * (1.0 / _along(scales, input, axis))).round()
    return (steps + _along(zero_points, input, axis)).clamp(quant_min, quant_max).to(dtype)


@operator(
    "dequantize_per_channel(Tensor input, Tensor scales, Tensor? zero_points, int axis, int quant_min, int quant_max, ScalarType dtype, *, "
    "ScalarType? out_dtype=None) -> Tensor"
)
def dequantize_per_channel(
    input: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: dtypes.dtype,
    *,
    out_dtype=None,
) -> Tensor:
    """And back."""
    _check_dtype(input, dtype)
    steps = input if zero_points is None else input - _along(zero_points, input, axis)
    return (steps * _along(scales, input, axis)).to(out_dtype or dtypes.float32)


# -- tokens --------------------------------------------------------------------------------------------------------------------------------


def _per_token_quant_qparam_dim_check(input: Tensor, scales: Tensor, zero_points: Tensor) -> None:
    """AssertionError unless there is one scale and one zero point for each row of the last dimension."""
    tokens = prod(input.shape[:-1])
    for name, given in (("scales", scales), ("zero_points", zero_points)):
        if given.numel() != tokens:
            raise AssertionError(f"num_tokens: {tokens} {name}: {given.size()}. One for each row is expected")


@operator("choose_qparams_per_token(Tensor input, ScalarType dtype) -> (Tensor, Tensor)")
def choose_qparams_per_token(input: Tensor, dtype: dtypes.dtype) -> Pair:
    """(scales that let the largest number of each row be 127, zero points of zero)."""
    scales = input.abs().amax(-1, True)
    if scales.dtype is dtypes.float16:
        scales = scales.float()
    if dtype is not dtypes.int8:
        raise Exception(f"unsupported dtype in choose_qparams_per_token: {dtype}")
    scales = scales.clamp(min=1e-5).div(127)
    return scales, scales.new_zeros(scales.shape)


@operator("choose_qparams_per_token_asymmetric(Tensor input, ScalarType dtype) -> (Tensor, Tensor)")
@operator("_choose_qparams_per_token_asymmetric_impl(Tensor input, ScalarType dtype) -> (Tensor, Tensor)")
def choose_qparams_per_token_asymmetric(input: Tensor, dtype: dtypes.dtype) -> Pair:
    """(scales, zero points) that map each row, with 0 among its numbers, to -128 ... 127."""
    low, high = -128, 127
    smallest, largest = input.amin(-1, True).clamp(max=0), input.amax(-1, True).clamp(min=0)
    scale = ((largest - smallest) / float(high - low)).clamp(min=dtypes.finfo(dtypes.float32).eps)
    first, last = smallest / scale, largest / scale
    # Whichever end loses less by rounding decides where zero lies.
    zero_point = OPS["where"](low + first + high + last > 0, low - first, high - last).clamp(low, high).round()
    return scale.to(dtypes.float64), zero_point.to(dtypes.int64)


@operator("quantize_per_token(Tensor input, Tensor scales, Tensor zero_points, int quant_min, int quant_max, ScalarType dtype) -> Tensor")
def quantize_per_token(input: Tensor, scales: Tensor, zero_points: Tensor, quant_min: int, quant_max: int, dtype: dtypes.dtype) -> Tensor:
    """round(input / scale + zero_point) with a scale for every row, within the limits."""
    _per_token_quant_qparam_dim_check(input, scales, zero_points)
    return input.mul(1.0 / scales).add(zero_points).round().clamp(quant_min, quant_max).to(dtype)


@operator(
    "dequantize_per_token(Tensor input, Tensor scales, Tensor zero_points, int quant_min, int quant_max, ScalarType dtype, ScalarType output_dtype) -> Tensor"
)
def dequantize_per_token(
    input: Tensor, scales: Tensor, zero_points: Tensor, quant_min: int, quant_max: int, dtype: dtypes.dtype, output_dtype: dtypes.dtype
) -> Tensor:
    """And back."""
    return ((input - zero_points) * scales).to(output_dtype)


# -- groups of a row -----------------------------------------------------------------------------------------------------------------------


def _groups(input: Tensor, scales: Tensor, group_size: int) -> Tensor:
    """(number of groups, group_size)"""
    if group_size <= 1:
        raise AssertionError(f"group_size must be > 1, found {group_size}")
    if group_size > input.shape[-1] and scales.shape[-1] == 1:
        group_size = input.shape[-1]  # one scale for each row
    if input.shape[-1] % group_size:
        raise AssertionError(f"input.shape[-1] {input.shape[-1]} must be divisible by group_size {group_size}")
    return input.reshape(-1, group_size)


@operator(
    "quantize_per_channel_group(Tensor input, Tensor scales, Tensor zero_points, int quant_min, int quant_max, ScalarType dtype, int group_size) -> Tensor"
)
def quantize_per_channel_group(
    input: Tensor, scales: Tensor, zero_points: Tensor, quant_min: int, quant_max: int, dtype: dtypes.dtype, group_size: int = 128
) -> Tensor:
    """round(input / scale + zero_point) with a scale for every group of a row, within the limits."""
    steps = _groups(input, scales, group_size).mul(1.0 / scales.reshape(-1, 1)).add(zero_points.reshape(-1, 1)).round()
    return steps.clamp(quant_min, quant_max).to(dtype).reshape_as(input)


@operator(
    "dequantize_per_channel_group(Tensor input, Tensor scales, Tensor? zero_points, int quant_min, int quant_max, ScalarType dtype, int group_size, "
    "ScalarType output_dtype) -> Tensor"
)
def dequantize_per_channel_group(
    input: Tensor, scales: Tensor, zero_points: Tensor | None, quant_min: int, quant_max: int, dtype: dtypes.dtype, group_size: int = 128,
    output_dtype: dtypes.dtype = dtypes.float32,
) -> Tensor:  # fmt: skip
    """And back."""
    groups = _groups(input, scales, group_size)
    steps = groups if zero_points is None else groups.sub(zero_points.reshape(-1, 1))
    return steps.mul(scales.reshape(-1, 1)).reshape_as(input).to(output_dtype)


@operator("fake_quant_per_channel(Tensor input, Tensor scales, Tensor zero_points, int axis, int quant_min, int quant_max) -> Tensor")
def fake_quant_per_channel(input: Tensor, scales: Tensor, zero_points: Tensor, axis: int, quant_min: int, quant_max: int) -> Tensor:
    """There and back at once; gradients pass where nothing was cut off."""
    return OPS["fake_quantize_per_channel_affine"](input, scales, zero_points, axis, quant_min, quant_max)


@operator("convert_element_type.no_fuse(Tensor input, ScalarType dtype) -> Tensor")
def convert_element_type(input: Tensor, dtype: dtypes.dtype) -> Tensor:
    """input.to(dtype), which a compiler is not to fuse with others."""
    return input.to(dtype)


# -- the library ---------------------------------------------------------------------------------------------------------------------------

quantized_decomposed_lib = Library("quantized_decomposed", "DEF")
for _schema, _function in KERNELS.items():
    quantized_decomposed_lib.define(_schema)
    _differentiable = _function in (fake_quant_per_channel, choose_qparams_per_token_asymmetric)
    quantized_decomposed_lib.impl(
        _schema.partition("(")[0], _function, "CompositeImplicitAutograd" if _differentiable else "CompositeExplicitAutograd"
    )
