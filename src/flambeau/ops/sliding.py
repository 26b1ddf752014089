"""Sliding windows: `unfold` lists those of an image as columns, `fold` adds columns up to an image. Each is the derivative of the other.

A window has kernel_size elements `dilation` apart; the next one begins `stride` further on; `padding` zeros surround the image.
"""

from __future__ import annotations

import functools
import itertools
import math

from flambeau import dtypes
from flambeau.kernels import arrays
from flambeau.ops.declare import composite, on_arrays

inner = functools.partial(on_arrays, public=False, method=False)


@inner(grad_name="Im2ColBackward0")
def _im2col(input, kernel, dilation, padding, stride):
    """(N, C, H, W) -> (N, C * kh * kw, L), L being the number of windows."""
    counts = _counts(input.shape[2:], kernel, dilation, padding, stride)
    image = _surrounded(input, padding) if any(padding) else input
    samples, channels, *steps = arrays.element_strides(image)
    inside, between = (tuple(s * n for s, n in zip(steps, distance, strict=True)) for distance in (dilation, stride))
    windows = arrays.strided_view(image, (*input.shape[:2], *kernel, *counts), (samples, channels, *inside, *between))
    return arrays.contiguous_copy(windows).reshape(_column_shape(input.shape[:2], kernel, counts))


def _surrounded(input, padding):
    """The images with zeros around them."""
    size = [n + 2 * p for n, p in zip(input.shape[2:], padding, strict=True)]
    out = arrays.zeros((*input.shape[:2], *size), input.dtype, arrays.device_of(input))
    arrays.write(out[(..., *(slice(p, p + n) for n, p in zip(input.shape[2:], padding, strict=True)))], input)
    return out


@inner(grad_name="Col2ImBackward0")
def _col2im(input, size, kernel, dilation, padding, stride):
    """(N, C * kh * kw, L) -> (N, C, *size)."""
    counts = _counts(size, kernel, dilation, padding, stride)
    channels = input.shape[1] // math.prod(kernel)
    columns = input.reshape((input.shape[0], channels, *kernel, *counts))
    half = input.dtype.itemsize == 2 and input.dtype.kind in "fV"
    out = arrays.zeros((input.shape[0], channels, *size), dtypes.float32.numpy if half else input.dtype, arrays.device_of(input))
    for offset, to, place in _overlaps(size, counts, kernel, dilation, padding, stride):
        window = out[(slice(None), slice(None), *place)]
        window += columns[(slice(None), slice(None), *offset, *to)].astype(out.dtype, copy=False)
    return arrays.cast(out, input.dtype) if half else out


def _column_shape(first, kernel, counts) -> tuple[int, ...]:
    return (first[0], first[1] * math.prod(kernel), math.prod(counts))


def _counts(size, kernel, dilation, padding, stride) -> tuple[int, ...]:
    """How many windows there are along each dimension."""
    return tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, d, p, s in zip(size, kernel, dilation, padding, stride, strict=True))


def _overlaps(size, counts, kernel, dilation, padding, stride):
    """For each element of the window: (its offset, which windows have it inside the image, where it is there)."""
    for offset in itertools.product(*map(range, kernel)):
        to, place = [], []
        for o, n, count, d, p, s in zip(offset, size, counts, dilation, padding, stride, strict=True):
            begin = o * d - p  # where the first window has this element
            first = max(0, -(begin // s))
            last = min(count, (n - 1 - begin) // s + 1)
            to.append(slice(first, max(last, first)))
            place.append(slice(begin + first * s, begin + (last - 1) * s + 1 if last > first else begin + first * s, s))
        yield offset, to, place


_im2col.derivative(
    input=lambda grad, input_shape, kernel, dilation, padding, stride: _col2im(
        grad, tuple(input_shape[2:]), kernel, dilation, padding, stride
    )
)
_col2im.derivative(input=lambda grad, kernel, dilation, padding, stride: _im2col(grad, kernel, dilation, padding, stride))


@_im2col.meta
def _(input, kernel, dilation, padding, stride):
    return _column_shape(input.shape[:2], kernel, _counts(input.shape[2:], kernel, dilation, padding, stride)), input.dtype


@_col2im.meta
def _(input, size, kernel, dilation, padding, stride):
    return (input.shape[0], input.shape[1] // math.prod(kernel), *size), input.dtype


def _pair(name: str, what: str, value, least: int) -> tuple[int, int]:
    pair = (value, value) if isinstance(value, int) else tuple(value)
    if len(pair) == 1:
        pair *= 2
    if len(pair) != 2 or min(pair) < least:
        wanted = "greater than zero" if least else "non-negative"
        raise RuntimeError(f"{name}: {what} should be {wanted}, one number or two, but got {value}")
    return pair


def _options(name, kernel_size, dilation, padding, stride):
    given = (("kernel_size", kernel_size, 1), ("dilation", dilation, 1), ("padding", padding, 0), ("stride", stride, 1))
    return tuple(_pair(name, *option) for option in given)


@composite(name="nn.functional.unfold", method=False)
def unfold(input, kernel_size, dilation=1, padding=0, stride=1):
    """Every window of an image as a column. (N, C, H, W) or (C, H, W) -> (N, C * kernel elements, number of windows)."""
    options = _options("unfold", kernel_size, dilation, padding, stride)
    if input.dim() not in (3, 4) or 0 in input.shape[-3:]:
        wanted = "Expected 3D or 4D input, (C, H, W) or (N, C, H, W), only N of which may be 0"
        raise RuntimeError(f"{wanted}, but got: {list(input.shape)}")
    counts = _counts(input.shape[-2:], *options)
    if min(counts) < 1:
        raise RuntimeError(
            f"unfold: calculated shape of the array of sliding blocks as {counts}, but its components must be at least one. "
            f"An input {tuple(input.shape[-2:])} has no room for kernel_size={options[0]} with dilation={options[1]}, "
            f"padding={options[2]}, stride={options[3]}"
        )
    return _im2col(input, *options) if input.dim() == 4 else _im2col(input.unsqueeze(0), *options).squeeze(0)


@composite(name="nn.functional.fold", method=False)
def fold(input, output_size, kernel_size, dilation=1, padding=0, stride=1):
    """Columns put back where their windows were and added up. (N, C * kernel elements, number of windows) -> (N, C, *output_size)."""
    size, options = _pair("fold", "output_size", output_size, 1), _options("fold", kernel_size, dilation, padding, stride)
    if input.dim() not in (2, 3) or 0 in input.shape[-2:]:
        wanted = "Expected 2D or 3D input, (C k, L) or (N, C k, L), only N of which may be 0"
        raise RuntimeError(f"{wanted}, but got: {list(input.shape)}")
    rows, columns = input.shape[-2:]
    if math.prod(options[0]) >= 1 << 63:
        raise RuntimeError(f"fold: the product of kernel_width and kernel_height overflowed: kernel_size={options[0]}")
    if rows % math.prod(options[0]):
        raise RuntimeError(f"fold: dimension 1 of input must be divisible by the product of kernel_size {options[0]}, found {rows}")
    counts = _counts(size, *options)
    if min(counts) < 1 or math.prod(counts) != columns:
        raise RuntimeError(
            f"fold: dimension 2 of input must match the calculated number of sliding blocks {' * '.join(map(str, counts))} = "
            f"{math.prod(counts)} for output_size={size}, kernel_size={options[0]}, dilation={options[1]}, "
            f"padding={options[2]} and stride={options[3]}, found {columns}"
        )
    return _col2im(input, size, *options) if input.dim() == 3 else _col2im(input.unsqueeze(0), size, *options).squeeze(0)
