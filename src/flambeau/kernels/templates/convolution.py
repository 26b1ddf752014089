"""Convolution of arrays in any number of dimensions, and its two relatives.

    convolve         y[n, o, p] = sum over c, k of  w[o, c, k] x[n, c, p * stride - padding + k * dilation]
    adjoint          what y adds to every x by that formula: the transposed convolution, which is the derivative by x
    weight_gradient  what x and y add to every w: the derivative by w

All three are linear in both arguments, so each one's derivatives are the other two. Shapes: x (N, C, *S), y (N, O, *P), w (O, C / groups, *K);
stride, padding and dilation have one number per spatial dimension.

float32 in main memory runs on compiled loops (conv_plans.py), and real numbers on a GPU on kernels (cuda/convolution.py). All else is a matrix product with windows: the patches of x that meet w are
columns of a matrix, copied out for a few samples at a time. Half precision is computed in float32 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from flambeau.kernels import arrays, layout
from flambeau.kernels.native import native
from flambeau.kernels.templates import conv_plans, gemm

Array = Any
Sizes = tuple[int, ...]
FLOAT32 = np.dtype(np.float32)
PIXELS = 128  # of an image: fewer would read and write the sums of a 1 x 1 kernel's gradient more often than add to them
CHUNK = 1 << 22  # elements of windows that are copied out at a time


def out_sizes(sizes: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes) -> Sizes:
    """How often the kernel fits into each dimension."""
    every = zip(sizes, kernel, stride, padding, dilation, strict=True)
    return tuple([(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in every])


def adjoint_sizes(sizes: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, more: Sizes) -> Sizes:
    """The sizes that `convolve` makes `sizes` of; the largest of them have more = stride - 1."""
    every = zip(sizes, kernel, stride, padding, dilation, more, strict=True)
    return tuple([(n - 1) * s - 2 * p + d * (k - 1) + m + 1 for n, k, s, p, d, m in every])


def convolve(x: Array, w: Array, bias: Array | None, sizes: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> Array:
    """The convolution of x with w, plus a number for every channel: (N, O, *sizes)."""
    shape = (x.shape[0], w.shape[0], *sizes)
    if arrays.on_gpu(x):
        found = arrays.cuda_room.convolution.by_library("fprop", x, w, bias, shape, stride, padding, dilation)
        if found is not None:
            return found
        out = _empty(shape, x, w)
        row = None if bias is None else arrays.contiguous(bias)
        if arrays.cuda_room.convolution.convolve(x, w, row, out, stride, padding, dilation, groups):
            return out
    if _is_half(x):
        return _in_float32(convolve, x, w, bias, sizes, stride, padding, dilation, groups)
    if _is_product(x, w, sizes, stride, padding, groups):
        out = _per_pixel(x, w.reshape(w.shape[:2]))
        return out if bias is None else _add_bias(out, bias)
    out = _empty(shape, x, w)
    if conv_plans.takes(x, w, bias, out):
        conv_plans.convolve(
            x, arrays.contiguous(w), None if bias is None else arrays.contiguous(bias), out, stride, padding, dilation, groups
        )
        return out
    if out.size and x.size:
        flat = w.reshape(groups, w.shape[0] // groups, -1)  # (G, O, CK)
        for some, windows in _windows(x, w.shape[2:], stride, padding, dilation, groups, sizes):
            found = gemm.batched(flat, windows)  # (n, G, O, P)
            arrays.write(out[some], found.reshape(-1, *shape[1:]))
    else:
        out[...] = 0
    return out if bias is None else _add_bias(out, bias)


def adjoint(y: Array, w: Array, bias: Array | None, sizes: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> Array:
    """The transposed convolution: y (N, O, *P) -> x (N, C, *sizes), plus a number for every channel."""
    if arrays.on_gpu(y):
        shape = (y.shape[0], w.shape[1] * groups, *sizes)
        found = arrays.cuda_room.convolution.by_library("dgrad", y, w, bias, shape, stride, padding, dilation)
        if found is not None:
            return found
        out = _empty(shape, y, w)
        row = None if bias is None else arrays.contiguous(bias)
        if arrays.cuda_room.convolution.adjoint(y, w, row, out, stride, padding, dilation, groups):
            return out
    if _is_half(y):
        return _in_float32(adjoint, y, w, bias, sizes, stride, padding, dilation, groups)
    if _is_product(y, w, sizes, stride, padding, groups):
        out = _per_pixel(y, w.reshape(w.shape[:2]).T)
        return out if bias is None else _add_bias(out, bias)
    n, o, *spots = y.shape
    channels, kernel = w.shape[1] * groups, w.shape[2:]
    out = _empty((n, channels, *sizes), y, w)
    if conv_plans.takes(y, w, bias, out):
        row = None if bias is None else arrays.contiguous(bias)
        if conv_plans.adjoint(y, arrays.contiguous(w), row, out, stride, padding, dilation, groups):
            return out
    turned = w.reshape(groups, o // groups, -1).swapaxes(1, 2)  # (G, CK, O)
    reach = [
        max(p + s, (q - 1) * t + d * (k - 1) + 1) for s, p, q, t, d, k in zip(sizes, padding, spots, stride, dilation, kernel, strict=True)
    ]
    per_sample = max(channels * math.prod(kernel) * math.prod(spots), 1)
    step = max(CHUNK // per_sample, 1)
    for first in range(0, n, step):
        some = y[first : first + step]
        padded = arrays.zeros((len(some), channels, *reach), y.dtype, arrays.device_of(y))
        if some.size and w.size:
            found = gemm.batched(turned, some.reshape(len(some), groups, o // groups, -1))  # (n, G, CK, P)
            found = found.reshape(len(some), channels, *kernel, *spots)
            for at in product(*map(range, kernel)):
                places = [slice(k * d, k * d + (q - 1) * t + 1, t) for k, d, q, t in zip(at, dilation, spots, stride, strict=True)]
                padded[(slice(None), slice(None), *places)] += found[(slice(None), slice(None), *at)]
        inner = [slice(p, p + s) for p, s in zip(padding, sizes, strict=True)]
        arrays.write(out[first : first + step], padded[(slice(None), slice(None), *inner)])
    return out if bias is None else _add_bias(out, bias)


def weight_gradient(x: Array, y: Array, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> Array:
    """sum over n, p of y[n, o, p] x[n, c, p * stride - padding + k * dilation]: (O, C / groups, *kernel), channels last if x or y is."""
    if arrays.on_gpu(x):
        shape = (y.shape[1], x.shape[1] // groups, *kernel)
        found = arrays.cuda_room.convolution.by_library("wgrad", x, y, None, shape, stride, padding, dilation)
        if found is not None:
            return found
    order, back = arrays.orders(x.ndim, any([layout.looks_channels_last(*arrays.view_of(a)) for a in (x, y)]))
    found = _weight_gradient(x, y, kernel, stride, padding, dilation, groups)
    return found if order == back else arrays.contiguous(found.transpose(order)).transpose(back)


def _weight_gradient(x: Array, y: Array, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> Array:
    if arrays.on_gpu(x):
        found = arrays.cuda_room.convolution.weight_gradient(x, y, tuple(kernel), stride, padding, dilation, groups)
        if found is not None:
            return found
    if _is_half(x):
        return _in_float32(_weight_gradient, x, y, kernel, stride, padding, dilation, groups)
    (_, o, *spots), channels = y.shape, x.shape[1] // groups
    sums = _per_image(x, y, kernel, stride, padding, groups)
    if sums is not None:
        return sums.reshape(o, channels, *kernel)
    if conv_plans.takes(x, y):
        out = native.empty((o, channels, *kernel), x.dtype)
        if channels == 1 < groups:  # planes are summed up one by one: they must lie one by one
            x, y = arrays.contiguous(x), arrays.contiguous(y)
        conv_plans.weight_gradient(x, y, out, stride, padding, dilation, groups)
        return out
    total = arrays.zeros((groups, o // groups, channels * math.prod(kernel)), x.dtype, arrays.device_of(x))
    if x.size and y.size:
        for some, windows in _windows(x, kernel, stride, padding, dilation, groups, tuple(spots)):
            of_y = y[some].reshape(-1, groups, o // groups, math.prod(spots))  # (n, G, O, P)
            total += gemm.batched(of_y, windows.swapaxes(2, 3)).sum(0)
    return total.reshape(o, channels, *kernel)


def _is_product(x: Array, w: Array, sizes: Sizes, stride: Sizes, padding: Sizes, groups: int) -> bool:
    """Whether the kernel is one number that meets every pixel of dense images: then channels are multiplied by a matrix."""
    if sizes != x.shape[2:] or groups != 1:
        return False
    plain = math.prod(w.shape[2:]) == 1 and max(stride) == 1 and max(padding) == 0
    if not plain or not x.size or not w.size:
        return False
    view = arrays.view_of(x)
    alike = layout.looks_channels_last(*view) or not layout.looks_channels_last(*arrays.view_of(w))
    return alike and (layout.is_contiguous(*view) or layout.is_channels_last(*view))


def _per_pixel(x: Array, matrix: Array) -> Array:
    """matrix (O, C) times the channels of every pixel of x (N, C, *S), which lies as it does: (N, O, *S)."""
    n, c, *sizes = x.shape
    if layout.looks_channels_last(*arrays.view_of(x)):
        pixels = x.transpose(0, *range(2, x.ndim), 1)
        found = gemm.product(pixels.reshape(-1, c), matrix.T).reshape(*pixels.shape[:-1], len(matrix))
        return found.transpose(0, x.ndim - 1, *range(1, x.ndim - 1))
    every = arrays.module_of(x).broadcast_to(matrix, (n, *matrix.shape))
    return gemm.product(every, x.reshape(n, c, math.prod(sizes))).reshape(n, len(matrix), *sizes)


def _per_image(x: Array, y: Array, kernel: Sizes, stride: Sizes, padding: Sizes, groups: int) -> Array | None:
    """sum over n of y[n] (O, P) times x[n] (C, P) turned, for a kernel that is one number; None if it is not, or images are small."""
    (n, c, *sizes), o = x.shape, y.shape[1]
    plain = groups == 1 and math.prod(kernel) == 1 and max(stride) == 1 and max(padding) == 0 and math.prod(sizes) >= PIXELS
    if not plain or type(x) is not np.ndarray or not (x.flags.c_contiguous and y.flags.c_contiguous and x.size and y.size):
        return None
    out = native.empty((o, c), x.dtype)
    for i, (image, other) in enumerate(zip(y.reshape(n, o, -1), x.reshape(n, c, -1), strict=True)):
        gemm.product_into(out, image, other.T, 1, min(i, 1))
    return out


def _windows(x, kernel, stride, padding, dilation, groups, spots) -> Iterator[tuple[slice, Array]]:
    """(which samples, the patches of x that the kernel meets: (n, G, CK, P)), for a few samples at a time."""
    n, channels = x.shape[:2]
    step = max(CHUNK // max(channels * math.prod(kernel) * math.prod(spots), 1), 1)
    for first in range(0, n, step):
        some = slice(first, first + step)
        part = _padded(x[some], padding)
        a, b, *strides = arrays.element_strides(part)
        walk = [s * d for s, d in zip(strides, dilation, strict=True)] + [s * t for s, t in zip(strides, stride, strict=True)]
        view = arrays.strided_view(part, (len(part), channels, *kernel, *spots), (a, b, *walk))
        flat = arrays.contiguous(view).reshape(len(part), groups, channels // groups * math.prod(kernel), math.prod(spots))
        yield some, flat


def _padded(x: Array, padding: Sizes) -> Array:
    """x with zeros around it; negative padding cuts off."""
    if not any(padding):
        return x
    cut = x[(..., *[slice(-p, n + p) if p < 0 else slice(None) for p, n in zip(padding, x.shape[2:], strict=True)])]
    around = [max(p, 0) for p in padding]
    shape = (*x.shape[:2], *[n + 2 * p for n, p in zip(cut.shape[2:], around, strict=True)])
    out = arrays.zeros(shape, x.dtype, arrays.device_of(x))
    out[(..., *[slice(p, p + n) for p, n in zip(around, cut.shape[2:], strict=True)])] = cut
    return out


def _empty(shape: Sizes, x: Array, w: Array) -> Array:
    """Memory for the result: channels last if x or w is."""
    strides = strides_of(shape, x.shape, arrays.element_strides(x), w.shape, arrays.element_strides(w))
    if type(x) is np.ndarray:
        return native.empty_strided(shape, strides, x.dtype)
    return arrays.empty_strided(shape, strides, x.dtype, arrays.device_of(x))


@lru_cache(1024)
def strides_of(shape: Sizes, xs: Sizes, x_steps: Sizes, ws: Sizes, w_steps: Sizes) -> Sizes:
    """Those of the result."""
    in_kind = layout.looks_channels_last(xs, x_steps) or layout.looks_channels_last(ws, w_steps)
    return layout.channels_last_strides(shape) if in_kind and 0 not in shape else layout.contiguous_strides(shape)


def _is_half(x: Array) -> bool:
    return x.dtype.itemsize == 2 and x.dtype.kind in "fV"


def _in_float32(function, first: Array, *arguments) -> Array:
    """Half precision computed in float32."""
    wide = [arrays.cast(a, FLOAT32) if hasattr(a, "dtype") else a for a in (first, *arguments)]
    return arrays.cast(function(*wide), first.dtype)


def _add_bias(out: Array, bias: Array) -> Array:
    out += bias.reshape(-1, *(1,) * (out.ndim - 2))
    return out
