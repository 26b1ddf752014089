"""Fourier transforms of arrays over any dimensions, by the compiled loops of fourier_loops.py. ops/fft.py is what uses this.

    complex_to_complex, real_to_half, half_to_real

Each returns None where the loops do not apply: there are none, or a length has a prime factor above 13. The caller then asks NumPy.
"""

from __future__ import annotations

from functools import lru_cache
from math import cos, pi, sin

import numpy as np

from flambeau.kernels import arrays, native
from flambeau.kernels.arrays import Array

RADICES = (2, 3, 4, 5, 7, 8, 11, 13)  # of passes
FACTS = ("N1", "N2", "count1", "count2", "table1", "table2", "between", "halves")  # what a plan begins with; then come the radices
ONE_STEP = 64  # points whose passes all stay in the nearest cache
ROW = 1 << 15  # bytes of real parts: what the stack of a thread has room for
COLUMN = 4096  # points of transforms side by side, likewise
SHORT = 32  # points of rows that are better taken several at a time
WIDTH = {np.dtype(np.complex64): 16, np.dtype(np.complex128): 8}  # transforms side by side: 128 bytes of each point
REAL = {np.dtype(np.complex64): np.dtype(np.float32), np.dtype(np.complex128): np.dtype(np.float64)}
COMPLEX = {real: whole for whole, real in REAL.items()}


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
    return np.array(facts, np.int64), table


def _passes(n: int, passes: tuple[int, ...]) -> np.ndarray:
    """W_len^(p k) for every pass, p and k = 1 ... r - 1: real and imaginary parts by turns."""
    found, length = [np.empty(0)], n
    for r in passes:
        w = roots(np.arange(length // r)[:, None] * np.arange(1, r), length)
        found.append(np.stack([w.real, w.imag], -1).reshape(-1))
        length //= r
    return np.concatenate(found)


# -- one dimension ---------------------------------------------------------------------------------------------------------


def _run(name: str, *args) -> None:
    if native.kernel(f"fft.{name}").into(*args) is NotImplemented:
        raise AssertionError(f"fft.{name} does not take {[(a.shape, a.dtype) for a in args if isinstance(a, np.ndarray)]}")


def _lines(array: np.ndarray, dim: int) -> np.ndarray:
    """The first elements of all lines along a dimension."""
    shape, strides = list(array.shape), list(_strides(array))
    del shape[dim], strides[dim]
    return native.strided_view(array, tuple(shape) or (1,), tuple(strides) or (0,), 0)


def _strides(array: np.ndarray) -> tuple[int, ...]:
    """In elements."""
    return tuple(s // array.itemsize for s in array.strides)


def _beside(fixed: np.ndarray, like: np.ndarray) -> np.ndarray:
    """One table for all lines."""
    return native.strided_view(fixed, like.shape, (0,) * like.ndim, 0)


def _along(x: np.ndarray, y: np.ndarray, dim: int, scale: float, backward: bool) -> None:
    """y = scale times the transform of x along `dim`; y may be x. Both complex, of one shape, with any strides."""
    n, real = x.shape[dim], REAL[x.dtype]
    xs, ys = _strides(x), _strides(y)
    others = [d for d in range(x.ndim) if d != dim and x.shape[d] > 1]
    lanes = min(others, key=lambda d: (abs(ys[d]) + abs(xs[d]), -d)) if others else None
    rows = lanes is None or (xs[dim] == 1 and ys[dim] == 1 and n > SHORT)
    if n * real.itemsize > (ROW if rows else COLUMN * real.itemsize):
        _large(x, y, dim, scale, backward)
    elif rows:
        facts, table = _plan(n, real, _split(n, 64 // real.itemsize), False)
        out = _lines(y, dim)
        _run(
            "rows",
            out,
            _unless(x is y, x, dim, out),
            _beside(table, out),
            _beside(facts, out),
            n,
            scale,
            backward,
            xs[dim],
            ys[dim],
            x is y,
        )
    else:
        _columns(x, y, dim, lanes, scale, backward, None)


def _unless(same: bool, x: np.ndarray, dim: int, out: np.ndarray) -> np.ndarray:
    """x's lines; where x is y something else, because the launcher wants operands apart."""
    return _beside(np.empty(1, x.dtype), out) if same else _lines(x, dim)


def _columns(x, y, dim: int, lanes: int, scale: float, backward: bool, more) -> None:
    """Transforms along `dim`, some at a time that lie side by side along `lanes`; then times `more`, which lies as y does."""
    n, real, width, count = x.shape[dim], REAL[x.dtype], WIDTH[x.dtype], x.shape[lanes]
    xs, ys = _strides(x), _strides(y)
    facts, table = _plan(n, real, (1, n) if n <= ONE_STEP else _split(n, 1), False)
    whole = count // width
    for first, groups, wide in ((0, whole, width), (whole * width, 1, count - whole * width)):
        if groups * wide == 0:
            continue
        out, source, beside = (_groups(a, dim, lanes, first, groups, wide) for a in (y, x, y if more is None else more))
        if x is y:
            source = _beside(np.empty(1, x.dtype), out)
        if more is None:
            beside = _beside(np.empty(1, x.dtype), out)
        numbers = n * wide, n, wide, scale, backward, xs[dim], xs[lanes], ys[dim], ys[lanes], x is y, more is not None
        _run("columns", out, source, _beside(table, out), _beside(facts, out), beside, *numbers)


def _groups(array, dim: int, lanes: int, first: int, groups: int, wide: int) -> np.ndarray:
    """The first elements of groups of lines that lie side by side."""
    shape, strides = list(array.shape), list(_strides(array))
    offset = first * strides[lanes]
    shape[lanes], strides[lanes] = groups, strides[lanes] * wide
    del shape[dim], strides[dim]
    return native.strided_view(array, tuple(shape), tuple(strides), offset)


def _large(x, y, dim: int, scale: float, backward: bool) -> None:
    """The formula of fourier_loops.py with arrays: n = N1 N2 as a matrix, its columns transformed, multiplied, then its rows, written as columns."""
    n, dtype = x.shape[dim], x.dtype
    n1, n2 = _split(n, 16)
    xs, ys = _strides(x), _strides(y)
    front, back = x.shape[:dim], x.shape[dim + 1 :]
    between = native.empty((*front, n1, n2, *back), dtype)
    matrix = native.strided_view(x, between.shape, (*xs[:dim], xs[dim] * n2, xs[dim], *xs[dim + 1 :]), 0)
    turned = native.strided_view(y, between.shape, (*ys[:dim], ys[dim], ys[dim] * n1, *ys[dim + 1 :]), 0)
    _along(matrix, between, dim, 1.0, backward)
    twiddles = _twiddles(n1, n2, dtype, backward)
    between *= twiddles.reshape(n1, n2, *(1 for _ in back))
    _along(between, turned, dim + 1, scale, backward)


@lru_cache(8)
def _twiddles(n1: int, n2: int, dtype: np.dtype, backward: bool) -> np.ndarray:
    found = roots(np.arange(n1)[:, None] * np.arange(n2), n1 * n2)
    return (found.conj() if backward else found).astype(dtype)


# -- several dimensions ----------------------------------------------------------------------------------------------------


def _applies(array: Array, *sizes: int) -> bool:
    compiled = type(array) is np.ndarray and native.kernel("fft.rows") is not native.not_compiled
    return compiled and array.size > 0 and all(radices(n) is not None for n in sizes)


def complex_to_complex(array: Array, dims, scale: float, forward: bool) -> Array | None:
    """The transform over `dims`. Real or complex -> complex, C-contiguous."""
    if not _applies(array, *(array.shape[d] for d in dims)):
        return None
    dtype = array.dtype if array.dtype in REAL else COMPLEX.get(array.dtype)
    if dtype is None:
        return None
    source = arrays.cast(array, dtype) if array.dtype != dtype else array
    out = native.empty(array.shape, dtype)
    for number, dim in enumerate(sorted(dims, reverse=True)):
        _along(out if number else source, out, dim, 1.0 if number else scale, not forward)
    return out


def real_to_half(array: Array, dims, scale: float) -> Array | None:
    """The transform of real numbers: of the last of `dims` only the frequencies 0 ... n // 2."""
    if not _applies(array, *(array.shape[d] for d in dims)) or array.dtype not in COMPLEX:
        return None
    *others, dim = dims
    n, dtype = array.shape[dim], COMPLEX[array.dtype]
    if n % 2 or n // 2 * array.itemsize > ROW:
        whole = complex_to_complex(array, dims, scale, True)
        return None if whole is None else arrays.contiguous(whole[(slice(None),) * dim + (slice(n // 2 + 1),)])
    rows = arrays.contiguous(np.moveaxis(array, dim, -1))
    out = native.empty((*rows.shape[:-1], n // 2 + 1), dtype)
    m, last = n // 2, rows.ndim - 1
    facts, table = _plan(m, array.dtype, _split(m, 64 // array.itemsize), True)
    lines = _lines(out, last)
    _run("half", lines, _lines(rows, last), _beside(table, lines), _beside(facts, lines), n, scale)
    out = arrays.contiguous(np.moveaxis(out, -1, dim))
    for other in others:
        _along(out, out, other, 1.0, False)
    return out


def half_to_real(array: Array, dims, scale: float, n: int) -> Array | None:
    """The backward transform to n real numbers along the last of `dims`, of which `array` has the first half of the spectrum."""
    if not _applies(array, *(array.shape[d] for d in dims[:-1]), n) or array.dtype not in REAL:
        return None
    *others, dim = dims
    if others:
        array = complex_to_complex(array, others, 1.0, False)
    m, real = n // 2, REAL[array.dtype]
    rows = arrays.contiguous(np.moveaxis(array, dim, -1))
    if n % 2 or m * real.itemsize > ROW:
        mirror = rows[..., n - m - 1 : 0 : -1].conj()  # for n even the middle stands once
        rows = np.concatenate([rows, mirror], -1)
        rows[..., 0].imag = 0
        if n % 2 == 0:
            rows[..., m].imag = 0
        found = complex_to_complex(rows, (rows.ndim - 1,), scale, False)
        return arrays.contiguous(np.moveaxis(found.real, -1, dim))
    out = native.empty((*rows.shape[:-1], n), real)
    last = rows.ndim - 1
    facts, table = _plan(m, real, _split(m, 64 // real.itemsize), True)
    lines = _lines(out, last)
    _run("whole", lines, _lines(rows, last), _beside(table, lines), _beside(facts, lines), n, scale)
    return arrays.contiguous(np.moveaxis(out, -1, dim))
