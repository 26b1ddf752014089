"""Reading at points that lie between elements: each is a weighted sum over some places of a plane, the same for all channels.

    mixed    out[n, c, p] = sum over t of weights[n, t, p] * x[n, c, places[n, t, p]]
    spread   dx[n, c, places[n, t, p]] += weights[n, t, p] * g[n, c, p]                  what flows back to x
    along    dw[n, t, p] = sum over c of g[n, c, p] * x[n, c, places[n, t, p]]           what flows back to the weights

A place of -1 is nowhere: it reads as zero and nothing is written there. The compiled loops take a line each, of a channel or of a tap, so that sums
are added up in an order that does not depend on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from flambeau.kernels import arrays
from flambeau.kernels.arrays import Array
from flambeau.kernels.indexing import gather
from flambeau.kernels.native import native
from flambeau.kernels.reductions.reduce import unhalved

# -- where to read, and how much ---------------------------------------------------------------------------------------------

MODES = {"bilinear": 2, "nearest": 1, "bicubic": 4}  # neighbours along one dimension
PADDINGS = ("zeros", "border", "reflection")  # what is outside
A = -0.75  # of the cubic convolution


class Words(NamedTuple):
    """What the formulas are made of, besides arithmetic: on arrays, on expressions, or on tensors, where steps have no derivative."""

    where: Callable
    floor: Callable
    round: Callable
    fmod: Callable


def line_taps(position: Any, n: Any, mode: str, padding: str, corners: bool, words: Words) -> tuple[list, list]:
    """(places, weights) of the neighbours of a position along a dimension of n elements: whole numbers, perhaps outside.

    Nothing is multiplied before it is rounded down: so arrays, expressions and tensors find the same neighbours, to the last bit.
    """
    if mode == "bicubic":
        first = words.floor(position)
        t = position - first
        s = 1 - t
        inner = [((A + 2) * d - (A + 3)) * d * d + 1 for d in (t, s)]
        return [_brought_in(first + k, n, padding, corners, words) for k in range(-1, 3)], [A * t * s * s, *inner, A * s * t * t]
    position = _brought_in(position, n, padding, corners, words)
    if mode == "nearest":
        return [words.round(position)], [words.where(position < -math.inf, position, 1.0)]  # 1, with a derivative: 0
    first = words.floor(position)
    return [first, first + 1], [first + 1 - position, position - first]


def _brought_in(x, n, padding: str, corners: bool, words: Words):
    """Positions outside of 0 ... n - 1 moved inside. What is moved to the border has no derivative."""
    if padding == "zeros":
        return x
    where = words.where
    if padding == "reflection":
        low, span = (0.0, n - 1.0) if corners else (-0.5, n * 1.0)
        if type(span) is float and not span:
            return x * 0
        away = x - low
        away = where(away >= 0, away, -away)
        rest, flipped = words.fmod(away, span), words.fmod(words.floor(away / span), 2.0) > 0.5
        x = where(flipped, span - rest, rest) + low
    x = where(x > 0, x, 0.0)
    return where(x < n - 1, x, n - 1.0)


def paired(a: Any, b: Any, combine: Callable) -> Any:
    """Every neighbour along the dimensions so far with every one along the next. (N, T, P), (N, K, P) -> (N, T K, P)."""
    return combine(a[:, :, None], b[:, None]).reshape((a.shape[0], a.shape[1] * b.shape[1], a.shape[-1]))


def taps(positions: Array, sizes: tuple[int, ...], mode: str, padding: str, corners: bool) -> tuple[Array, Array]:
    """(places in a plane of these sizes, or -1; weights): of every dimension one neighbour. (N, P, dims), x first -> (N, T, P) twice."""
    samples, count, dims = positions.shape
    shape = samples, MODES[mode] ** dims, count
    small = math.prod(sizes) < 2**31
    if type(positions) is np.ndarray and small and positions.flags.c_contiguous:
        weights, places = native.empty(shape, positions.dtype), native.empty(shape, np.dtype(np.int32))
        way = list(product(MODES, PADDINGS, (False, True))).index((mode, padding, corners))
        seen = tuple([(a, (samples,), (math.prod(a.shape[1:]),)) for a in (weights, positions, places)])
        if _ran("taps", weights, seen, (shape[1] * count, count, dims, MODES[mode], way, *sizes, *(0,) * (3 - dims))):
            return places, weights
    xp = arrays.module_of(positions)  # half precision is rounded after every step, as PyTorch does
    words = Words(xp.where, xp.floor, xp.rint, xp.fmod)
    with np.errstate(all="ignore"):
        found = [line_taps(positions[..., -1 - d], n, mode, padding, corners, words) for d, n in enumerate(sizes)]
        lines = [(xp.stack(at, 1), xp.stack(weights, 1)) for at, weights in found]
        inside = [(at >= 0) & (at <= n - 1) for n, (at, _) in zip(sizes, lines, strict=True)]
        flat = [xp.where(ok, at, 0).astype("int64") for ok, (at, _) in zip(inside, lines, strict=True)]
        places = flat[0]
        for n, more in zip(sizes[1:], flat[1:], strict=True):
            places = paired(places * n, more, xp.add)
        places = xp.where(reduce(lambda a, b: paired(a, b, xp.logical_and), inside), places, -1).astype("int32" if small else "int64")
        weights = reduce(lambda a, b: paired(a, b, xp.multiply), [w for _, w in lines])
    return places, _cast(weights, positions)


# -- reading -----------------------------------------------------------------------------------------------------------------


def mixed(x: Array, places: Array, weights: Array) -> Array:
    """x (N, C, S), places and weights (N, T, P) -> (N, C, P)."""
    out = arrays.empty_beside(x, (*x.shape[:2], places.shape[2]), x.dtype)
    taps, points = places.shape[1:]
    if _ran("mix", out, (_rows(out), _rows(x), _all(places), _all(weights)), (taps * points, points, taps)):
        return out
    return _cast(sum(_read(x, places[:, t]) * unhalved(weights)[:, t, None] for t in range(taps)), x)


def spread(g: Array, places: Array, weights: Array, size: int) -> Array:
    """g (N, C, P), places and weights (N, T, P) -> (N, C, size)."""
    out = arrays.empty_beside(g, (*g.shape[:2], size), g.dtype)
    taps, points = places.shape[1:]
    if _ran("spread", out, (_rows(out), _rows(g), _all(places), _all(weights)), (taps * points, points, taps, size)):
        return out
    wide = unhalved(g)
    total = arrays.zeros((*out.shape[:2], size + 1), wide.dtype, arrays.device_of(g))  # the last place is nowhere
    for t in range(taps):
        at = arrays.module_of(g).broadcast_to(places[:, t, None] % (size + 1), wide.shape).astype("int64")
        gather.scatter_reduce(total, 2, at, wide * unhalved(weights)[:, t, None], "sum")
    return _cast(total[..., :size], g)


def along(g: Array, x: Array, places: Array) -> Array:
    """g (N, C, P), x (N, C, S), places (N, T, P) -> (N, T, P)."""
    out = arrays.empty_beside(x, places.shape, x.dtype)
    channels, size = x.shape[1:]
    points = places.shape[2]
    if _ran("along", out, (_rows(out), _all(g), _all(x), _rows(places)), (channels * points, points, channels, size)):
        return out
    xp = arrays.module_of(x)
    return _cast(xp.stack([(unhalved(g) * _read(x, places[:, t])).sum(1) for t in range(places.shape[1])], 1), x)


def _read(x: Array, at: Array) -> Array:
    """(N, C, S), (N, P) -> (N, C, P) in at least single precision."""
    xp, x = arrays.module_of(x), unhalved(x)
    found = xp.take_along_axis(x, xp.broadcast_to(xp.maximum(at, 0)[:, None], (*x.shape[:2], at.shape[1])).astype("int64"), 2)
    return xp.where(at[:, None] < 0, x.dtype.type(0), found)


def _cast(found: Array, like: Array) -> Array:
    return arrays.contiguous_copy(arrays.cast(found, like.dtype))


def _rows(a: Array) -> tuple:
    """(the array; shape and steps of its lines): a line for each of the first two dimensions."""
    return a, a.shape[:2], (a.shape[1] * a.shape[2], a.shape[2])


def _all(a: Array) -> tuple:
    """The same where a line needs all of a sample."""
    return a, (a.shape[0], 1), (a.shape[1] * a.shape[2], 0)


def _ran(name: str, out: Array, operands: tuple, numbers: tuple) -> bool:
    """Whether the compiled loop took it."""
    if type(out) is not np.ndarray or not out.size or native.kernel(f"points.{name}") is native.not_compiled:
        return False
    if not all([a.flags.c_contiguous and a.size and (a.dtype == out.dtype or a.dtype == np.int32) for a, _, _ in operands]):
        return False
    seen = [native.strided_view(a, shape, steps, 0) for a, shape, steps in operands]
    return native.kernel(f"points.{name}").into(*seen, *numbers) is not NotImplemented
