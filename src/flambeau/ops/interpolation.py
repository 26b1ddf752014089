"""Interpolation: sequences, images and volumes on a finer or coarser grid.

Every mode is a weighted gather along one axis after the other: out[i] = sum_k weight[i, k] * x[index[i, k]]. What differs is the table of
places and weights, which `TABLES` makes for a mode from the sizes. The derivative is a gather with the table turned round.

    nearest, nearest-exact     1 place                     bicubic    4 places, by the cubic convolution of Keys (1981)
    linear (bi-, tri-)         2 places around the point   lanczos    6 places, by a windowed sinc (Duchon, 1979); with antialias only

With antialias the filter is as wide as an output element, as in Pillow. "area" is the average of all that lies under an output element:
`adaptive_avg_pool`. Results lie in memory as their input does.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from flambeau import dtypes, errors
from flambeau.kernels import arrays
from flambeau.kernels.indexing import gather
from flambeau.kernels.indexing.weighted_gather import Table, mix
from flambeau.ops import specs
from flambeau.ops.declare import composite, on_arrays
from flambeau.ops.pooling import _adaptive_avg


@on_arrays(public=False, method=False)
def _resampled(input, steps, backward):
    """Weighted gathers, one after the other: `steps` are (dim, key), along `dim` by the table that `key` describes; or, `backward`, from the last
    to the first by the tables turned round. (*, n, *) -> (*, m, *)."""
    order, back = arrays.lying(input)
    input = input.transpose(order) if steps else arrays.contiguous_copy(input.transpose(order))
    for dim, key in reversed(steps) if backward else steps:
        input = mix(input, order.index(dim), _turned(key) if backward else _table(key))
    return input.transpose(back)


@on_arrays(public=False, method=False, differentiable=False)
def _bytes(input, steps):
    """The same for images of bytes, as Pillow and PyTorch compute it: with whole weights of 15 bits, rounded to bytes after every dimension."""
    order, back = arrays.lying(input)
    input = arrays.contiguous_copy(input.transpose(order))
    for dim, key in steps:
        input = _bytes_along(input, order.index(dim), _table(key))
    return input.transpose(back)


def _bytes_along(input, dim: int, table: Table):
    xp = arrays.module_of(input)
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


def _resized(input, steps, backward=False):
    shape = list(input.shape)
    for dim, key in steps:
        shape[dim] = key[1] if backward else key[2]
    return specs.in_kind(input, shape)


_bytes.meta(_resized)
_resampled.meta(_resized)


@on_arrays(public=False, method=False)
def _picked(input, key):
    """The element of each place of the grid that `key` describes: (mode, sizes, sizes of the result, scales). (N, C, *S) -> (N, C, *T)."""
    order, back = arrays.lying(input)
    found, lead = arrays.contiguous(input.transpose(order)), order.index(input.ndim - len(key[1]))
    ends = found.shape[:lead], found.shape[lead + len(key[1]) :]
    for dim, index, shape in _grid(key):
        found = gather.take_rows(_between(ends, found, shape), lead + dim, arrays.module_of(input).asarray(index))
    return _between(ends, found, key[2]).transpose(back)


@on_arrays(public=False, method=False)
def _unpicked(grad, key):
    """The adjoint: each element added to the place it was picked from. (N, C, *T) -> (N, C, *S)."""
    order, back = arrays.lying(grad)
    dtype, half = grad.dtype, dtypes.OF_NUMPY[grad.dtype].is_floating_point and grad.itemsize == 2
    found, lead = arrays.contiguous(arrays.cast(grad, FLOAT32) if half else grad).transpose(order), order.index(grad.ndim - len(key[1]))
    ends = found.shape[:lead], found.shape[lead + len(key[1]) :]
    for dim, index, shape in reversed(_grid(key)):
        out = arrays.zeros((*ends[0], *shape, *ends[1]), found.dtype, arrays.device_of(grad))
        taken = (*shape[:dim], len(index), *shape[dim + 1 :])
        gather.add_rows(out, lead + dim, arrays.module_of(grad).asarray(index), _between(ends, arrays.contiguous(found), taken))
        found = out
    return (arrays.cast(found, dtype) if half else found).reshape((*ends[0], *key[1], *ends[1])).transpose(back)


def _between(ends: tuple, array, shape):
    """The array with its places, which stand between these dimensions, in another shape."""
    return array.reshape((*ends[0], *shape, *ends[1]))


FLOAT32 = np.dtype(np.float32)


_picked.derivative(input=lambda grad, key: _unpicked(grad, key))
_unpicked.derivative(grad=lambda grad, key: _picked(grad, key))
_picked.meta(lambda input, key: specs.in_kind(input, (*input.shape[: input.ndim - len(key[1])], *key[2])))
_unpicked.meta(lambda grad, key: specs.in_kind(grad, (*grad.shape[: grad.ndim - len(key[1])], *key[1])))


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


def _antialiased(mode: str, size: int, out: int, step, real) -> Table:
    """A filter whose width is that of an output element, normalised to sum 1."""
    reach, filtered = FILTERS[mode]
    reach = real(reach)
    support = reach * step if step >= 1 else reach
    center = step * (np.arange(out, dtype=real) + real(0.5))
    first = np.maximum((center - support + real(0.5)).astype(np.int64), 0)
    count = np.minimum((center + support + real(0.5)).astype(np.int64), size) - first
    taps = np.arange(int(count.max(initial=0)))
    inside = taps < count[:, None]
    away = abs((taps + first[:, None] - center[:, None] + real(0.5)) * (real(1) / step if step >= 1 else real(1)))
    weight = np.where(inside, filtered(away.astype(real)), 0)
    total = weight.sum(1, keepdims=True)
    weight = weight / np.where(total == 0, 1, total)
    return Table(np.where(inside, first[:, None] + taps, 0), weight, count, size)


def _sinc(x):
    """sin(pi x) / (pi x), windowed by the middle of a sinc three times as wide."""
    return np.where(x < 3, np.sinc(x) * np.sinc(x / 3), 0).astype(x.dtype)


# (reach on each side in input elements, weight by distance) of the filters of antialias
FILTERS = {
    "bilinear": (1, lambda x: np.maximum(1 - x, 0)),
    "cubic": (2, lambda x: _keys(x, x.dtype.type(-0.5))),
    "lanczos": (3, _sinc),
}


@functools.lru_cache(64)
def _turned(key: tuple) -> Table:
    """The way back, with weights of float32 for half precision, too, as in PyTorch: rounded ones would tell in a sum over many elements."""
    *what, dtype = key
    return _table((*what, "float32" if dtype in ("bfloat16", "float16") else dtype)).turned()


def _filled(places, weights, size: int) -> Table:
    """A table in which every tap counts."""
    return Table(places, weights, np.full(len(places), places.shape[1]), size)


# -- the public function ---------------------------------------------------------------------------------------------------

AXES = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3, "lanczos": 2}  # places that a mode is made for; the others take 1 to 3
ANY = ("nearest", "area", "nearest-exact")
BYTES = ("nearest", "nearest-exact", "bilinear", "bicubic", "lanczos")  # modes that take uint8

NODES = {
    "nearest": "Nearest",
    "nearest-exact": "NearestExact",
    "linear": "Linear",
    "bilinear": "Bilinear",
    "bicubic": "Bicubic",
    "trilinear": "Trilinear",
    "lanczos": "Lanczos",
}


def _node_name(
    input, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None, antialias=False
) -> str | None:
    return f"Upsample{NODES[mode]}{input.dim() - 2}D{'Aa' * bool(antialias)}Backward0" if mode in NODES else None


def _autocast(device: str, given: dict) -> str | None:
    """CUDA's, except averaging over areas, which is a pooling."""
    return "float32" if device == "cuda" and given.get("mode", "nearest") != "area" else None


@composite(name="nn.functional.interpolate", method=False, grad_name=_node_name, autocast=_autocast)
def interpolate(input, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None, antialias=False):
    """`input` on a grid of another size. (N, C, *) -> (N, C, *size), or * times scale_factor.

    mode           "nearest", "nearest-exact", "area", "linear" (3-d input), "bilinear", "bicubic", "lanczos" (4-d), "trilinear" (5-d)
    align_corners  whether the centres of the corner elements stay where they are, or the corners of the whole
    antialias      whether a filter is as wide as an element of the result: of "bilinear" and "bicubic", and always of "lanczos"
    """
    if mode in ANY and align_corners is not None:
        raise ValueError("align_corners is a matter of modes that interpolate: linear, bilinear, bicubic, trilinear")
    sizes, scales = _sizes(input, size, scale_factor, mode, recompute_scale_factor)
    places = _checked(input, mode, antialias, align_corners)
    if mode == "area":
        return _adaptive_avg(f"adaptive_avg_pool{places}d", places, input, tuple(sizes))
    if min(sizes) <= 0 or 0 in input.shape[1:]:
        raise RuntimeError(f"Input and output sizes must all be positive, found {list(input.shape)} and {sizes}")
    if math.prod((*input.shape[:2], *sizes)) * input.dtype.itemsize >= 1 << 63:
        raise RuntimeError(f"interpolate: a result of size {sizes} is larger than any memory")
    _check_dtype(input, mode)
    if mode.startswith("nearest"):
        return _picked(input, (mode, tuple(input.shape[2:]), tuple(sizes), tuple(scales)))
    half, kind = input.is_floating_point() and input.dtype.itemsize == 2, "cubic" if mode == "bicubic" else mode
    wide = input.float() if half else input
    kind = f"smooth {kind}" if antialias else kind
    steps = []
    for i in reversed(range(places)):
        n, m = input.shape[2 + i], sizes[i]
        if n == m and (align_corners or scales[i] is None or scales[i] == 1):
            continue
        key = (kind, n, m, scales[i], bool(align_corners), input.dtype.name)
        steps.append((2 + i, key))
    if input.dtype is dtypes.uint8:
        return _bytes(input, tuple(steps))
    return _resampled(wide, tuple(steps), False).to(input.dtype)


def _checked(input, mode: str, antialias: bool, corners: bool | None) -> int:
    """How many dimensions of places there are, after checking that the mode takes them."""
    places = input.dim() - 2
    if mode not in (*ANY, *AXES):
        raise NotImplementedError(f"interpolate: unknown mode {mode!r}: try one of {', '.join((*ANY, *AXES))}")
    if antialias and (mode not in ("bilinear", "bicubic", "lanczos") or places != 2):
        raise ValueError(
            f"antialias goes with a 4-D tensor and mode bilinear, bicubic or lanczos, not with {input.dim()} dimensions and {mode}"
        )
    if mode == "lanczos" and places == 2 and (corners or not antialias):
        raise ValueError(f"lanczos goes with antialias=True, and not with align_corners=True: found {antialias=}, align_corners={corners}")
    if places not in (1, 2, 3) or places != AXES.get(mode, places):
        wanted = f"a {AXES[mode] + 2}D input" if mode in AXES else "3D, 4D or 5D inputs"
        raise NotImplementedError(f"interpolate: mode {mode} takes {wanted}, found {input.dim()} dimensions")
    return places


def _check_dtype(input, mode: str) -> None:
    if not input.is_floating_point() and not (input.dtype is dtypes.uint8 and mode in BYTES):
        raise NotImplementedError(f'"{mode} interpolation" not implemented for {input.dtype}. Try x.float()')


def _sizes(input, size, scale_factor, mode: str, recompute) -> tuple[list[int], list[float | None]]:
    """(size of the result, scales as they were given) along each dimension of places."""
    places = input.dim() - 2
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    if size is not None:
        if recompute:
            raise ValueError("interpolate: size is given, so there is no scale factor to recompute (recompute_scale_factor)")
        listed = _listed("size", size, places)
        if not all(hasattr(n, "__index__") and not isinstance(n, bool) and not getattr(n, "is_floating_point", bool)() for n in listed):
            raise TypeError(f"expected size to be one of int or a tuple, a whole number for each dimension: found {size!r}")
        return list(map(int, listed)), [None] * places
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
        raise ValueError(f"interpolate: {what} needs one number for each of the dimensions {places}, found {list(given)}: {wanted}")
    return list(given)


# -- old names -------------------------------------------------------------------------------------------------------------


@composite(name="nn.functional.upsample", method=False)
def upsample(input, size=None, scale_factor=None, mode="nearest", align_corners=None):
    """The old name of interpolate."""
    errors.warn("`nn.functional.upsample` is deprecated: nn.functional.interpolate does the same")
    return interpolate(input, size, scale_factor, mode, align_corners)


@composite(name="nn.functional.upsample_nearest", method=False)
def upsample_nearest(input, size=None, scale_factor=None):
    """interpolate with mode="nearest"."""
    errors.warn("`nn.functional.upsample_nearest` is deprecated: nn.functional.interpolate does the same")
    return interpolate(input, size, scale_factor, mode="nearest")


@composite(name="nn.functional.upsample_bilinear", method=False)
def upsample_bilinear(input, size=None, scale_factor=None):
    """interpolate with mode="bilinear" and align_corners."""
    errors.warn("`nn.functional.upsample_bilinear` is deprecated: nn.functional.interpolate does the same, with align_corners=True")
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)
