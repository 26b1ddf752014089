"""Interpolation: sequences, images and volumes on a finer or coarser grid.

Every mode is a weighted gather along one axis after the other: out[i] = sum_k weight[i, k] * x[index[i, k]]. What differs is the table of
places and weights, which `TABLES` makes for a mode from the sizes. The derivative is a gather with the table turned round.

    nearest, nearest-exact     1 place                     area       all places under the output's, of equal weight
    linear (bi-, tri-)         2 places around the point   bicubic    4 places, by the cubic convolution of Keys (1981)

With antialias the filter is as wide as an output element, as in Pillow.
"""

from __future__ import annotations

import functools
import math
import warnings

import numpy as np

from flambeau import dtypes
from flambeau.kernels import arrays, gather
from flambeau.kernels.mixing import Table, mix
from flambeau.ops.declare import composite, on_arrays
from flambeau.ops.formats import channels_last, channels_last_3d


@on_arrays(public=False, method=False)
def _resampled(input, steps, backward):
    """Weighted gathers, one after the other: `steps` are (dim, key), along `dim` by the table that `key` describes; or, `backward`, from the last
    to the first by the tables turned round. (*, n, *) -> (*, m, *)."""
    for dim, key in reversed(steps) if backward else steps:
        input = mix(input, dim, _turned(key) if backward else _table(key))
    return input


@on_arrays(public=False, method=False, differentiable=False)
def _bytes(input, dim, key):
    """The same for images of bytes, as Pillow and PyTorch compute it: with whole weights of 15 bits, rounded to bytes after every dimension."""
    xp, table = arrays.module_of(input), _table(key)
    places, weights, counts = table.places, table.weights, table.counts
    weights = np.where(np.arange(weights.shape[1]) < counts[:, None], weights, 0)
    for k in range(1, weights.shape[1]):  # at an edge several taps are one element: one weight, rounded once
        same = places[:, k] == places[:, k - 1]
        weights[:, k] += np.where(same, weights[:, k - 1], 0)
        weights[:, k - 1] = np.where(same, 0, weights[:, k - 1])
    bits = next((p for p in range(22) if int(0.5 + weights.max() * (1 << (p + 1))) >= 1 << 15), 22)
    whole = np.trunc(weights * (1 << bits) + np.copysign(0.5, weights)).astype(np.int32)
    total = 1 << (bits - 1)
    for k in range(weights.shape[1]):
        part = gather.take_rows(input, dim, xp.asarray(places[:, k])).astype("int32")
        total = total + part * xp.asarray(whole[:, k]).reshape([-1 if d == dim else 1 for d in range(input.ndim)])
    return xp.clip(total >> bits, 0, 255).astype(input.dtype)


_resampled.derivative(input=lambda grad, steps, backward: _resampled(grad, steps, not backward))


_bytes.meta(lambda input, dim, key: ((*input.shape[:dim], key[2], *input.shape[dim + 1 :]), input.dtype))


@_resampled.meta
def _(input, steps, backward):
    shape = list(input.shape)
    for dim, key in steps:
        shape[dim] = key[1] if backward else key[2]
    return tuple(shape), input.dtype


@on_arrays(public=False, method=False)
def _picked(input, key):
    """The element of each place of the grid that `key` describes: (mode, sizes, sizes of the result, scales). (*, *S) -> (*, *T)."""
    lead = input.shape[: input.ndim - len(key[1])]
    found = arrays.contiguous(input)
    for dim, index, shape in _grid(key):
        found = gather.take_rows(found.reshape((*lead, *shape)), len(lead) + dim, arrays.module_of(input).asarray(index))
    return found.reshape((*lead, *key[2]))


@on_arrays(public=False, method=False)
def _unpicked(grad, key):
    """The adjoint: each element added to the place it was picked from. (*, *T) -> (*, *S)."""
    lead = grad.shape[: grad.ndim - len(key[1])]
    for dim, index, shape in reversed(_grid(key)):
        out = arrays.zeros((*lead, *shape), grad.dtype, arrays.device_of(grad))
        taken = (*lead, *shape[:dim], len(index), *shape[dim + 1 :])
        gather.add_rows(out, len(lead) + dim, arrays.module_of(grad).asarray(index), arrays.contiguous(grad).reshape(taken))
        grad = out
    return grad.reshape((*lead, *key[1]))


_picked.derivative(input=lambda grad, key: _unpicked(grad, key))
_unpicked.derivative(grad=lambda grad, key: _picked(grad, key))
_picked.meta(lambda input, key: ((*input.shape[: len(input.shape) - len(key[1])], *key[2]), input.dtype))
_unpicked.meta(lambda grad, key: ((*grad.shape[: len(grad.shape) - len(key[1])], *key[1]), grad.dtype))


@functools.lru_cache(64)
def _grid(key: tuple) -> list[tuple[int, np.ndarray, tuple[int, ...]]]:
    """How the elements of a grid are picked: (dimension, 1-d index, sizes at that moment), one after the other; all dimensions at once, where
    a table for that is small enough to be worth it."""
    mode, sizes, out, scales = key
    places = [_nearest(mode, *along) for along in zip(sizes, out, scales, strict=True)]
    if math.prod(out) > AT_ONCE:
        return [(d, p, (*out[:d], *sizes[d:])) for d, p in enumerate(places)]
    flat = np.zeros((), np.int64)
    for n, p in zip(sizes, places, strict=True):
        flat = flat[..., None] * n + p
    return [(0, flat.reshape(-1), (math.prod(sizes),))]


AT_ONCE = 1 << 18  # places in a table that counts over several dimensions; larger ones would cost more memory than they save passes


# -- tables ----------------------------------------------------------------------------------------------------------------


@functools.lru_cache(64)
def _table(key: tuple) -> Table:
    """The table for (mode, input size, output size, scale, align_corners, dtype)."""
    mode, size, out, scale, corners, dtype = key
    real = np.float64 if dtype in ("float64", "uint8") else np.float32
    if mode == "area":
        return _area(size, out)
    if corners:
        step = real(size - 1) / real(out - 1) if out > 1 else real(0)
    else:
        step = real(1 / scale) if scale is not None and scale > 0 else real(size) / real(out)
    if mode.startswith("smooth "):
        return _antialiased(mode.removeprefix("smooth "), size, out, step, real)
    i = np.arange(out, dtype=real)
    point = step * i if corners else step * (i + real(0.5)) - real(0.5)
    # PyTorch keeps the weights of half precision in that precision; not so those of "bilinear", which has a kernel of its own.
    half = dtypes.BY_NAME[dtype].numpy if dtype in ("bfloat16", "float16") and mode != "bilinear" else real
    return (_cubic if mode == "cubic" else _linear)(point, size, real, half)


def _nearest(mode: str, size: int, out: int, scale: float | None) -> np.ndarray:
    """The place of each output element, found in float32 as PyTorch does."""
    step = np.float32(1 / scale) if scale is not None and scale > 0 else np.float32(size) / np.float32(out)
    i = np.arange(out, dtype=np.float32)
    found = np.floor((i + np.float32(0.5)) * step if mode == "nearest-exact" else i * step).astype(np.int64)
    return np.minimum(found, size - 1)


def _linear(point, size: int, real, half) -> Table:
    point = np.maximum(point, real(0))
    first = np.minimum(np.floor(point).astype(np.int64), size - 1)
    second = first + (first < size - 1)
    t = np.clip(point - first.astype(real), real(0), real(1)).astype(half).astype(real)
    return _filled(np.stack([first, second], 1), np.stack([(1 - t).astype(half).astype(real), t], 1), size)


def _cubic(point, size: int, real, half) -> Table:
    whole = np.floor(point)
    t = (point - whole).astype(real)
    first = np.minimum(whole.astype(np.int64), size - 1)
    places = np.clip(first[:, None] + np.arange(-1, 3), 0, size - 1)
    weights = [_keys(t + 1, real(-0.75)), _keys(t, real(-0.75)), _keys(1 - t, real(-0.75)), _keys(2 - t, real(-0.75))]
    return _filled(places, np.stack(weights, 1).astype(half).astype(real), size)


def _keys(x, a):
    """The cubic convolution kernel at distances x >= 0."""
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0)).astype(x.dtype)


def _area(size: int, out: int) -> Table:
    i = np.arange(out)
    first, end = i * size // out, -(-(i + 1) * size // out)
    count = end - first
    taps = np.arange(int(count.max(initial=0)))
    inside = taps < count[:, None]
    return Table(np.where(inside, first[:, None] + taps, 0), inside / np.maximum(count, 1)[:, None], count, size)


def _antialiased(mode: str, size: int, out: int, step, real) -> Table:
    """A filter whose width is that of an output element, normalised to sum 1."""
    reach = real(2 if mode == "cubic" else 1)  # of the filter on each side, in input elements
    support = reach * step if step >= 1 else reach
    center = step * (np.arange(out, dtype=real) + real(0.5))
    first = np.maximum((center - support + real(0.5)).astype(np.int64), 0)
    count = np.minimum((center + support + real(0.5)).astype(np.int64), size) - first
    taps = np.arange(int(count.max(initial=0)))
    inside = taps < count[:, None]
    away = abs((taps + first[:, None] - center[:, None] + real(0.5)) * (real(1) / step if step >= 1 else real(1)))
    weight = _keys(away.astype(real), real(-0.5)) if mode == "cubic" else np.maximum(real(1) - away, real(0))
    weight = np.where(inside, weight, 0)
    total = weight.sum(1, keepdims=True)
    weight = weight / np.where(total == 0, 1, total)
    return Table(np.where(inside, first[:, None] + taps, 0), weight, count, size)


@functools.lru_cache(64)
def _turned(key: tuple) -> Table:
    return _table(key).turned()


def _filled(places, weights, size: int) -> Table:
    """A table in which every tap counts."""
    return Table(places, weights, np.full(len(places), places.shape[1]), size)


# -- the public function ---------------------------------------------------------------------------------------------------

AXES = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}  # places that a mode is made for; the others take 1 to 3
ANY = ("nearest", "area", "nearest-exact")


NODES = {
    "nearest": "Nearest",
    "nearest-exact": "NearestExact",
    "linear": "Linear",
    "bilinear": "Bilinear",
    "bicubic": "Bicubic",
    "trilinear": "Trilinear",
}


def _node_name(
    input, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None, antialias=False
) -> str | None:
    if mode not in NODES:
        return "SqueezeBackward1" if input.dim() == 3 else f"AdaptiveAvgPool{input.dim() - 2}DBackward0"
    return f"Upsample{NODES[mode]}{input.dim() - 2}D{'Aa' * bool(antialias)}Backward0"


@composite(name="nn.functional.interpolate", method=False, grad_name=_node_name, settled=True)
def interpolate(input, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None, antialias=False):
    """`input` on a grid of another size. (N, C, *) -> (N, C, *size), or * times scale_factor.

    mode           "nearest", "nearest-exact", "area", "linear" (3-d input), "bilinear", "bicubic" (4-d), "trilinear" (5-d)
    align_corners  whether the centres of the corner elements stay where they are, or the corners of the whole
    """
    if mode in ANY and align_corners is not None:
        raise ValueError("align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear")
    sizes, scales = _sizes(input, size, scale_factor, mode, recompute_scale_factor)
    places = _checked(input, mode, antialias)
    if min(sizes) <= 0 or 0 in input.shape[1:]:
        raise RuntimeError(f"Input and output sizes should be greater than 0, but got input {list(input.shape)} and output size {sizes}")
    if mode.startswith("nearest"):
        return _finished(input, _picked(input, (mode, tuple(input._array.shape[2:]), tuple(sizes), tuple(scales))))
    _check_dtype(input, mode)
    half, kind = input.is_floating_point() and input.dtype.itemsize == 2, "cubic" if mode == "bicubic" else mode
    wide = input.float() if half else input
    kind = f"smooth {kind}" if antialias else kind
    steps = []
    for i in reversed(range(places)):
        n, m = input.shape[2 + i], sizes[i]
        if n == m and (align_corners or scales[i] is None or scales[i] == 1 or mode == "area"):
            continue
        key = (kind, n, m, scales[i], bool(align_corners), input.dtype.name)
        steps.append((2 + i, key))
    if input.dtype is dtypes.uint8:
        for step in steps:
            wide = _bytes(wide, *step)
    elif steps:
        wide = _resampled(wide, tuple(steps), False)
    return _finished(input, wide.clone() if wide is input else wide)


def _finished(input, result):
    """The result in the dtype of the input, and in its memory format."""
    if result.dtype is not input.dtype:
        result = result.to(input.dtype)
    for dims, form in ((4, channels_last), (5, channels_last_3d)):
        if input.dim() == dims and input.is_contiguous(memory_format=form) and not input.is_contiguous():
            return result.contiguous(memory_format=form)
    return result.contiguous()


def _checked(input, mode: str, antialias: bool) -> int:
    """How many dimensions of places there are, after checking that the mode takes them."""
    places = input.dim() - 2
    if mode not in (*ANY, *AXES):
        raise NotImplementedError(f"interpolate: unknown mode {mode!r}: try one of {', '.join((*ANY, *AXES))}")
    if antialias and not (mode in ("bilinear", "bicubic") and input.dim() == 4):
        raise ValueError("Anti-alias option is restricted to bilinear and bicubic modes and requires a 4-D tensor as input")
    if places not in (1, 2, 3) or places != AXES.get(mode, places):
        wanted = f"a {AXES[mode] + 2}D input" if mode in AXES else "3D, 4D or 5D inputs"
        raise NotImplementedError(
            f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {input.dim()}D) for the modes: nearest | linear | bilinear | bicubic | "
            f"trilinear | area | nearest-exact (got {mode}), which takes {wanted}"
        )
    return places


def _check_dtype(input, mode: str) -> None:
    if not input.is_floating_point() and not (input.dtype is dtypes.uint8 and mode in ("bilinear", "bicubic")):
        raise NotImplementedError(f'"{mode} interpolation" not implemented for {input.dtype}. Try x.float()')


def _sizes(input, size, scale_factor, mode: str, recompute) -> tuple[list[int], list[float | None]]:
    """(size of the result, scales as they were given) along each dimension of places."""
    places = input.dim() - 2
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    if size is not None:
        if recompute:
            raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
        return list(map(int, _listed("size", size, places))), [None] * places
    if scale_factor is None:
        raise ValueError("either size or scale_factor should be defined")
    scales = [float(s) for s in _listed("scale_factor", scale_factor, places)]
    found = [math.floor(float(n) * s) for n, s in zip(input.shape[2:], scales, strict=True)]
    return found, [None] * places if recompute or mode == "area" else list(scales)


def _listed(what: str, given, places: int) -> list:
    if not isinstance(given, (tuple, list)):
        return [given] * places
    if len(given) != places:
        wanted = f"(d1, d2, ..., dK) and {what} in (s1, s2, ..., sK), or one number"
        raise ValueError(f"Input and {what} must have the same number of spatial dimensions, but got {places} and {list(given)}: {wanted}")
    return list(given)


# -- old names -------------------------------------------------------------------------------------------------------------


@composite(name="nn.functional.upsample", method=False)
def upsample(input, size=None, scale_factor=None, mode="nearest", align_corners=None):
    """The old name of interpolate."""
    warnings.warn("`nn.functional.upsample` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=3)
    return interpolate(input, size, scale_factor, mode, align_corners)


@composite(name="nn.functional.upsample_nearest", method=False)
def upsample_nearest(input, size=None, scale_factor=None):
    """interpolate with mode="nearest"."""
    warnings.warn("`nn.functional.upsample_nearest` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=3)
    return interpolate(input, size, scale_factor, mode="nearest")


@composite(name="nn.functional.upsample_bilinear", method=False)
def upsample_bilinear(input, size=None, scale_factor=None):
    """interpolate with mode="bilinear" and align_corners."""
    warnings.warn("`nn.functional.upsample_bilinear` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=3)
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)
