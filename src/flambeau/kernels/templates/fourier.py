"""Fourier transforms of arrays over any dimensions, by the compiled loops of fourier_loops.py. ops/fft.py is what uses this.

    complex_to_complex, real_to_half, half_to_real

Each returns None where there are no loops; the caller then asks NumPy. Lengths with prime factors above 13 are convolutions of other lengths.
"""

from __future__ import annotations

from functools import lru_cache
from math import cos, pi, sin

import numpy as np

from flambeau.kernels import arrays
from flambeau.kernels.arrays import Array
from flambeau.kernels.native import native

RADICES = (2, 3, 4, 5, 7, 8, 11, 13)  # of passes
FACTS = ("N1", "N2", "count1", "count2", "table1", "table2", "between", "halves")  # what a plan begins with; then come the radices
ONE_STEP = 64  # points whose passes all stay in the nearest cache
ROW = 1 << 15  # bytes of real parts: what the stack of a thread has room for
COLUMN = 4096  # points of transforms side by side, likewise
CHUNK = 1 << 17  # points between the steps of a convolution
SHORT = 96  # points of rows that are better taken several at a time
WIDTH = {np.dtype(np.complex64): 16, np.dtype(np.complex128): 8}  # transforms side by side: 128 bytes of each point
REAL: dict[np.dtype, np.dtype] = {np.dtype(np.complex64): np.dtype(np.float32), np.dtype(np.complex128): np.dtype(np.float64)}
COMPLEX: dict[np.dtype, np.dtype] = {real: whole for whole, real in REAL.items()}


# -- plans -----------------------------------------------------------------------------------------------------------------


def root(k: int, n: int) -> tuple[float, float]:
    """exp(-2 pi i k / n): the angle is brought below pi / 4, where cosine and sine lose nothing."""
    eighth, rest = divmod(8 * (k % n), n)  # k / n = (eighth + rest / n) / 8
    if eighth % 2:
        rest = n - rest
    angle = pi / 4 * rest / n
    c, s = cos(angle), sin(angle)
    if eighth in (1, 2, 5, 6):
        c, s = s, c
    return (-c if 2 <= eighth < 6 else c), (s if eighth >= 4 else -s)


def roots(k: np.ndarray, n: int) -> np.ndarray:
    """root(k, n) of many k, complex128."""
    eighth, rest = np.divmod(8 * (k % n), n)
    angle = pi / 4 * np.where(eighth % 2, n - rest, rest) / n
    c, s = np.cos(angle), np.sin(angle)
    swapped = np.isin(eighth, (1, 2, 5, 6))
    c, s = np.where(swapped, s, c), np.where(swapped, c, s)
    return np.where((eighth >= 2) & (eighth < 6), -c, c) + 1j * np.where(eighth >= 4, s, -s)


@lru_cache(1024)
def radices(n: int) -> tuple[int, ...] | None:
    """The passes of n points; None if there is a prime factor without one."""
    found = []
    for r in (13, 11, 7, 5, 3, 8, 4, 2):
        while n % r == 0 and not (r == 8 and n == 16):  # 4 x 4 rather than 8 x 2
            found.append(r)
            n //= r
    return tuple(found) if n == 1 else None


@lru_cache(1024)
def _split(n: int, whole: int) -> tuple[int, int]:
    """(N1, N2) with n = N1 N2, near each other; multiples of `whole` are as good as numbers half as far away."""
    if n <= 1:
        return 1, n
    costs = {}
    for a in range(1, int(n**0.5) * 4 + 1):
        if n % a == 0:
            b = n // a
            costs[a] = max(a, b) / min(a, b) * (1 if a % whole == 0 else 2) * (1 if b % whole == 0 else 2)
    a = min(costs, key=costs.__getitem__)
    return a, n // a


@lru_cache(256)
def _plan(n: int, real: np.dtype, sides: tuple[int, int], halves: bool) -> tuple[np.ndarray, np.ndarray]:
    """(facts, table) of transforms of n points: what the loops look up. `halves`: of 2 n real numbers, too."""
    n1, n2 = sides
    first, second = radices(n1), radices(n2)
    assert first is not None and second is not None
    tables = [_passes(n1, first), _passes(n2, second)]
    k, j = np.arange(n1)[:, None], np.arange(n2)
    between = roots(k * j, n).reshape(-1) if n1 > 1 else np.ones(n2, np.complex128)
    tables += [between.real, between.imag]
    places = [0, *np.cumsum([t.size for t in tables]).tolist()]
    if halves:
        beside = roots(np.arange(n + 1), 2 * n)
        tables += [beside.real, beside.imag]
    table = np.concatenate([*tables, np.zeros(32)]).astype(real)  # loops read whole vectors
    facts = [n1, n2, len(first), len(second), places[0], places[1], places[2], places[4], *first, *second]
    return np.array(facts, np.int64)[:1], table[:1]  # to the launcher they are one number for all


def _passes(n: int, passes: tuple[int, ...]) -> np.ndarray:
    """W_len^(p k) for every pass, p and k = 1 ... r - 1: real and imaginary parts by turns."""
    found, length = [np.empty(0)], n
    for r in passes:
        w = roots(np.arange(length // r)[:, None] * np.arange(1, r), length)
        found.append(np.stack([w.real, w.imag], -1).reshape(-1))
        length //= r
    return np.concatenate(found)


# -- one dimension ---------------------------------------------------------------------------------------------------------


def _along(x: np.ndarray, y: np.ndarray, dim: int, scale: float, backward: bool, way: str = "", more: np.ndarray | None = None) -> None:
    """y = scale times the transform of x along `dim`, with any strides; y may be x. `way`: "half" from real numbers, "whole" to them, "" neither.

    `more`: what columns are multiplied by, the same for all matrices of the last two dimensions, and stored as these are.
    """
    n, here = (y if way == "whole" else x).shape[dim], x is y
    real = x.dtype if way == "half" else REAL[x.dtype]
    if radices(n) is None:
        return _by_convolution(x, y, dim, scale, backward)
    rows, facts, table, launches = _geometry(n, dim, real, x.shape, y.shape, x.strides, y.strides, x.itemsize, y.itemsize, way)
    if launches is None:
        return _large(x, y, dim, scale, backward)
    view, dummy = native.strided_view, _DUMMIES[COMPLEX[real]]
    for numbers, shape, xs, x_first, ys, y_first in launches:
        source = view(dummy, shape, (0,) * len(shape), 0) if here else view(x, shape, xs, x_first)  # the launcher wants operands apart
        if not rows:
            name = f"fft.columns_{way}" if way else "fft.columns"
            numbers = *numbers[:3], scale, backward, *numbers[3:], here, more is not None
            beside = dummy if more is None else view(more, shape, (*[0] * (len(shape) - 1), ys[-1]), y_first)
            found = native.kernel(name).into(view(y, shape, ys, y_first), source, table, facts, beside, *numbers)
        elif way:
            found = native.kernel(f"fft.{way}").into(view(y, shape, ys, y_first), source, table, facts, n, scale)
        else:
            found = native.kernel("fft.rows").into(view(y, shape, ys, y_first), source, table, facts, n, scale, backward, *numbers, here)
        if found is NotImplemented:
            raise AssertionError(f"fft: no loop takes {x.shape}, {x.strides}, {x.dtype} along {dim}")
    return None


_DUMMIES = {dtype: np.zeros(1, dtype) for dtype in WIDTH}  # for operands that are not there


@lru_cache(1024)  # programs transform arrays of the same few shapes again and again
def _geometry(n: int, dim: int, real, x_shape, y_shape, x_bytes, y_bytes, x_size: int, y_size: int, way: str) -> tuple:
    """(whether by rows, facts, table, launches): each launch numbers, shape, and strides and first element of x and of y.

    No launches where n is too large for the loops.
    """
    xs, ys = tuple(s // x_size for s in x_bytes), tuple(s // y_size for s in y_bytes)
    points = n // 2 if way else n
    others = [d for d in range(len(x_shape)) if d != dim]
    counted = [d for d in others if x_shape[d] > 1]
    lanes = min(counted, key=lambda d: (abs(ys[d]) + abs(xs[d]), -d)) if counted else None
    rows = lanes is None or (xs[dim] == 1 and ys[dim] == 1 and (points > SHORT or x_shape[lanes] < 4))
    if way and rows and (xs[dim] != 1 or ys[dim] != 1):
        rows, lanes = False, None
    if points > (ROW // real.itemsize if rows else COLUMN):
        return rows, None, None, None
    near = _split(points, 64 // real.itemsize) if rows else (1, points) if points <= ONE_STEP else _split(points, 1)
    facts, table = _plan(points, real, near, bool(way))
    shape, x_steps, y_steps = ([row[d] for d in others] for row in (x_shape, xs, ys))
    if rows or lanes is None:
        numbers = (xs[dim], ys[dim]) if rows else (n, n, 1, xs[dim], n, ys[dim], n)
        launches = [(numbers, *_joined(shape, x_steps, y_steps, 0, 0))]
        return rows, facts, table, launches
    width, count, at = WIDTH[COMPLEX[real]], x_shape[lanes], others.index(lanes)
    whole, launches = count // width, []
    for first, groups, wide in ((0, whole, width), (whole * width, 1, count - whole * width)):
        if groups * wide:
            part, x_part, y_part = list(shape), list(x_steps), list(y_steps)
            part[at], x_part[at], y_part[at] = groups, x_steps[at] * wide, y_steps[at] * wide
            numbers = n * wide, n, wide, xs[dim], xs[lanes], ys[dim], ys[lanes]
            launches.append((numbers, *_joined(part, x_part, y_part, first * xs[lanes], first * ys[lanes])))
    return rows, facts, table, launches


def _joined(shape, xs, ys, x_first: int, y_first: int) -> tuple:
    """(shape, strides of x, first of x, strides of y, first of y) of a launch: at least one dimension."""
    return tuple(shape) or (1,), tuple(xs) or (0,), x_first, tuple(ys) or (0,), y_first


def _large(x, y, dim: int, scale: float, backward: bool) -> None:
    """The formula of fourier_loops.py with arrays: n = N1 N2 as a matrix, its columns transformed, multiplied, then its rows, written as columns."""
    n, dtype = x.shape[dim], x.dtype
    n1, n2 = _split(n, 16)
    xs, ys = (tuple(s // a.itemsize for s in a.strides) for a in (x, y))
    front, back = x.shape[:dim], x.shape[dim + 1 :]
    between = native.empty((*front, n1, n2, *back), dtype)
    matrix = native.strided_view(x, between.shape, (*xs[:dim], xs[dim] * n2, xs[dim], *xs[dim + 1 :]), 0)
    turned = native.strided_view(y, between.shape, (*ys[:dim], ys[dim], ys[dim] * n1, *ys[dim + 1 :]), 0)
    twiddles = _twiddles(n1, n2, dtype, backward)
    if not back and n1 <= COLUMN:
        _along(matrix, between, dim, 1.0, backward, more=twiddles)
    else:
        _along(matrix, between, dim, 1.0, backward)
        with np.errstate(all="ignore"):
            between *= twiddles.reshape(n1, n2, *(1 for _ in back))
    _along(between, turned, dim + 1, scale, backward)


@lru_cache(2)  # each is as large as what it multiplies
def _twiddles(n1: int, n2: int, dtype: np.dtype, backward: bool) -> np.ndarray:
    found = roots(np.arange(n1)[:, None] * np.arange(n2), n1 * n2)
    return (found.conj() if backward else found).astype(dtype)


def _by_convolution(x, y, dim: int, scale: float, backward: bool) -> None:
    """Bluestein's transform of any number of points: with c[j] = exp(-pi i j^2 / n), X[k] = c[k] sum_j (x[j] c[j]) / c[k - j].

    The sum is a convolution, a product of spectra of `size` points, for which there are passes.
    """
    n, dtype = x.shape[dim], x.dtype
    size, chirp, spectrum = _chirp(n, dtype, backward)
    source, target = np.moveaxis(x, dim, -1), np.moveaxis(y, dim, -1)
    if source.ndim == 1:
        source, target = source[None], target[None]
    some = max(1, CHUNK // (size * max(1, source[0].size // n)))  # what is between stays in the cache
    for first in range(0, source.shape[0], some):
        part = source[first : first + some]
        padded = native.empty((*part.shape[:-1], size), dtype)
        with np.errstate(all="ignore"):
            np.multiply(part, chirp, out=padded[..., :n])
        padded[..., n:] = 0
        _along(padded, padded, padded.ndim - 1, 1.0, False)
        with np.errstate(all="ignore"):
            padded *= spectrum
        _along(padded, padded, padded.ndim - 1, scale, True)
        with np.errstate(all="ignore"):
            np.multiply(padded[..., :n], chirp, out=target[first : first + some])


@lru_cache(8)
def _chirp(n: int, dtype: np.dtype, backward: bool) -> tuple[int, np.ndarray, np.ndarray]:
    """(a number of points that has passes and room for the convolution, c, the spectrum of 1 / c divided by that number)."""
    size = 2 * n - 1
    while radices(size) is None or size % 16:
        size += 1
    chirp = roots(np.arange(n) ** 2, 2 * n)
    if backward:
        chirp = chirp.conj()
    kernel = np.zeros(size, np.complex128)
    kernel[:n] = chirp.conj()
    kernel[size - n + 1 :] = chirp[:0:-1].conj()
    return size, chirp.astype(dtype), (np.fft.fft(kernel) / size).astype(dtype)


# -- several dimensions ----------------------------------------------------------------------------------------------------


@lru_cache(1024)
def result_strides(shape: tuple[int, ...], strides: tuple[int, ...], dims: tuple[int, ...], last_stays: bool = False) -> tuple[int, ...]:
    """The order in memory of a result of this shape, in elements, as PyTorch lays it out; dropout after a transform draws in this order.

    The dimensions that are not transformed come first, then those that are, each kind as it was in the input (`strides`); with `last_stays`
    the last of `dims` changes fastest.
    """
    first = [d for d in range(len(shape)) if d not in dims]
    moving, end = (dims[:-1], dims[-1:]) if last_stays else (dims, ())
    order = [*sorted(first, key=lambda d: -strides[d]), *sorted(moving, key=lambda d: -strides[d]), *end]
    found, step = [0] * len(shape), 1
    for d in reversed(order):
        found[d], step = step, step * max(shape[d], 1)
    return tuple(found)


def _result(like: np.ndarray, shape: tuple[int, ...], dtype: np.dtype, dims, last_stays: bool) -> np.ndarray:
    return native.empty_strided(shape, result_strides(shape, like.strides, tuple(dims), last_stays), dtype)


def _copied(found: np.ndarray, out: np.ndarray) -> np.ndarray:
    arrays.write(out, found)
    return out


def _applies(array: Array) -> bool:
    compiled = type(array) is np.ndarray and native.kernel("fft.rows") is not native.not_compiled
    return compiled and array.size > 0 and array.flags.aligned


def complex_to_complex(array: Array, dims, scale: float, forward: bool) -> Array | None:
    """The transform over `dims`. Real or complex -> complex."""
    if not _applies(array):
        return None
    dtype = array.dtype if array.dtype in REAL else COMPLEX.get(array.dtype)
    if dtype is None:
        return None
    source = arrays.cast(array, dtype) if array.dtype != dtype else array
    out = _result(source if len(dims) > 1 else array, array.shape, dtype, dims, False)
    for number, dim in enumerate(sorted(dims, reverse=True)):
        _along(out if number else source, out, dim, 1.0 if number else scale, not forward)
    return out


def real_to_half(array: Array, dims, scale: float) -> Array | None:
    """The transform of real numbers: of the last of `dims` only the frequencies 0 ... n // 2."""
    if not _applies(array) or array.dtype not in COMPLEX:
        return None
    *others, dim = dims
    n, dtype = array.shape[dim], COMPLEX[array.dtype]
    out = _result(array, (*array.shape[:dim], n // 2 + 1, *array.shape[dim + 1 :]), dtype, dims, True)
    if n % 2 or n // 2 > min(ROW // array.itemsize, COLUMN) or radices(n) is None:
        whole = complex_to_complex(array, dims, scale, True)
        return None if whole is None else _copied(whole[(slice(None),) * dim + (slice(n // 2 + 1),)], out)
    _along(array, out, dim, scale, False, "half")
    for other in others:
        _along(out, out, other, 1.0, False)
    return out


def half_to_real(array: Array, dims, scale: float, n: int) -> Array | None:
    """The backward transform to n real numbers along the last of `dims`, of which `array` has the first half of the spectrum."""
    if not _applies(array) or array.dtype not in REAL:
        return None
    *others, dim = dims
    if others:
        array = complex_to_complex(array, others, 1.0, False)
    m, real = n // 2, REAL[array.dtype]
    out = _result(array, (*array.shape[:dim], n, *array.shape[dim + 1 :]), real, (dim,), True)
    if n % 2 or m > min(ROW // real.itemsize, COLUMN) or radices(n) is None:
        rows = np.moveaxis(array, dim, -1)
        rows = np.concatenate([rows, rows[..., n - m - 1 : 0 : -1].conj()], -1)  # for n even the middle stands once
        rows[..., 0].imag = 0
        if n % 2 == 0:
            rows[..., m].imag = 0
        found = complex_to_complex(rows, (rows.ndim - 1,), scale, False)
        assert found is not None
        return _copied(np.moveaxis(found.real, -1, dim), out)
    _along(array, out, dim, scale, True, "whole")
    return out
