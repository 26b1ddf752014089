"""Factorisations of arrays that NumPy does not offer: LU, LDL^T, triangular systems, and Cholesky with a report instead of an error.

On the CPU they are LAPACK's, called through ctypes from the OpenBLAS that products run on (see gemm.py). Where that library is missing, and on
CUDA, LU and triangular systems are computed here, a row or a column at a time for the whole batch; LDL^T is not available then.

Matrices are the last two dimensions, anything before them is a batch. Nothing here changes its arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from flambeau.kernels import arrays, gemm
from flambeau.kernels.arrays import Array

LETTERS = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}  # LAPACK's names for the dtypes
INT32 = np.dtype(np.int32)


def lu_factor(a: Array, pivot: bool = True) -> tuple[Array, Array, Array]:
    """(LU, pivots, info) with P L U = a. (..., M, N) -> (..., M, N), (..., min(M, N)), (...).

    L has ones on its diagonal and lies below it in LU, U on and above it. Row i was exchanged with row pivots[i] - 1, for i = 0, 1, ...
    info counts from 1 the first zero on the diagonal of U, 0 if there is none.
    """
    *batch, m, n = a.shape
    if not pivot or not _on_cpu(a) or _many_small(batch, min(m, n)):
        return _lu_by_columns(a, pivot)
    lu, pivots, info = _columns(a), np.empty((*batch, min(m, n)), INT32), np.zeros(batch, INT32)
    if lu.size:
        getrf = _routine("getrf", a.dtype)
        for at in np.ndindex(*batch):
            info[at] = getrf(m, n, lu[at], m, pivots[at])
    return lu, pivots, info


def _lu_by_columns(a: Array, pivot: bool) -> tuple[Array, Array, Array]:
    """Gaussian elimination of all matrices of the batch together, one column at a time."""
    xp = arrays.module_of(a)
    *batch, m, n = a.shape
    k, count = min(m, n), math.prod(batch)
    lu = xp.array(a).reshape(count, m, n)
    each = xp.arange(count)
    pivots = xp.zeros((count, k), INT32)
    with np.errstate(all="ignore"):
        for i in range(k):
            best = xp.argmax(_size(lu[:, i:, i]), axis=1) + i if pivot else xp.full(count, i)
            pivots[:, i] = best + 1
            lu[each, i], lu[each, best] = lu[each, best], lu[each, i]  # the right side is copied before either is written
            head = lu[:, i, i][:, None]
            lu[:, i + 1 :, i] /= xp.where(head == 0, head.dtype.type(1), head) if pivot else head
            lu[:, i + 1 :, i + 1 :] -= lu[:, i + 1 :, i, None] * lu[:, i, None, i + 1 :]
    zero = xp.diagonal(lu, axis1=1, axis2=2) == 0
    info = xp.where(zero.any(axis=1), zero.argmax(axis=1) + 1, 0) if k else xp.zeros(count)
    return lu.reshape(a.shape), pivots.reshape(*batch, k), info.astype(INT32).reshape(batch)


def _many_small(batch, n: int) -> bool:
    """Whether to treat a batch as a whole: a call of LAPACK costs 12 us, which 1000 matrices of 4 x 4 multiply to ten times the other way."""
    return n <= 16 and math.prod(batch) > 8 * n


def _size(x: Array) -> Array:
    """How large LAPACK takes a pivot to be: |x|, but |real| + |imag| for complex numbers."""
    return abs(x.real) + abs(x.imag) if x.dtype.kind == "c" else abs(x)


def solve_triangular(a: Array, b: Array, upper: bool, unit: bool) -> Array:
    """X with a X = b, reading one triangle of a (with `unit`, taking its diagonal for ones). (..., N, N), (..., N, K) -> (..., N, K).

    A zero on the diagonal divides by zero: the result then has infinities and NaNs, but there is no error.
    """
    xp = arrays.module_of(a)
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    n, k = b.shape[-2:]
    if not _on_cpu(a) or _many_small(batch, n):
        return _solve_by_rows(xp, a, b, batch, upper, unit)
    x = _columns(np.broadcast_to(b, (*batch, n, k)))
    if not x.size:
        return x
    if a.strides[-2] != a.itemsize or a.strides[-1] < n * a.itemsize:
        a = arrays.contiguous(a)
    by_rows = a.strides[-1] == a.itemsize and (n == 1 or a.strides[-2] >= n * a.itemsize)
    lead = max(a.strides[-2 if by_rows else -1] // a.itemsize, n)
    a = np.broadcast_to(a, (*batch, n, n))
    # BLAS reads memory column by column: a matrix stored by rows is its own transpose there.
    triangle, transposed = (b"L", b"T") if upper else (b"U", b"T")
    if not by_rows:
        triangle, transposed = (b"U", b"N") if upper else (b"L", b"N")
    trsm = _blas_routine("trsm", a.dtype)
    one = np.ones((), a.dtype)
    for at in np.ndindex(*batch):
        trsm(b"L", triangle, transposed, b"U" if unit else b"N", n, k, one, a[at], lead, x[at], n)
    return x


def _solve_by_rows(xp, a: Array, b: Array, batch, upper: bool, unit: bool) -> Array:
    """Substitution for all systems of the batch together, one row at a time."""
    n = b.shape[-2]
    x = xp.array(xp.broadcast_to(b, (*batch, *b.shape[-2:])))
    order = range(n - 1, -1, -1) if upper else range(n)
    with np.errstate(all="ignore"):
        for i in order:
            known = slice(i + 1, n) if upper else slice(0, i)
            row = x[..., i, :] - xp.matmul(a[..., i, None, known], x[..., known, :])[..., 0, :]
            x[..., i, :] = row if unit else row / a[..., i, i, None]
    return x


def cholesky(a: Array) -> tuple[Array, Array]:
    """(L, info) with L L^H = a, reading the lower triangle. info is 0, or the size of the first leading block that is not positive definite."""
    xp = arrays.module_of(a)
    try:
        found = raising(xp, xp.linalg.cholesky, a)
        return found, xp.zeros(a.shape[:-2], INT32)
    except np.linalg.LinAlgError:
        factor, info = xp.zeros_like(a), xp.zeros(a.shape[:-2], INT32)
        for at in np.ndindex(*a.shape[:-2]):
            factor[at], info[at] = _leading_cholesky(xp, a[at])
        return factor, info


def _leading_cholesky(xp, a: Array) -> tuple[Array, int]:
    """The factor of the largest leading block that has one, in a matrix of zeros, and the size of the first block that has none."""
    good, bad = 0, len(a) + 1  # a block inside a positive definite one is positive definite: halve the interval
    factor = xp.zeros_like(a)
    while bad - good > 1:
        size = (good + bad) // 2
        try:
            factor[:size, :size] = raising(xp, xp.linalg.cholesky, a[:size, :size])
            good = size
        except np.linalg.LinAlgError:
            bad = size
    return factor, 0 if bad > len(a) else bad


def ldl_factor(a: Array, hermitian: bool) -> tuple[Array, Array, Array]:
    """(LD, pivots, info): the Bunch-Kaufman factors of symmetric (or Hermitian) matrices, read from and packed into the lower triangle."""
    ld = _columns(a)
    *batch, n, _ = a.shape
    pivots, info = np.zeros((*batch, n), INT32), np.zeros(batch, INT32)
    if ld.size:
        trf = _needed("sytrf" if not _conjugates(a, hermitian) else "hetrf", a)
        work = np.empty(64 * n, a.dtype)
        for at in np.ndindex(*batch):
            info[at] = trf(b"L", n, ld[at], n, pivots[at], work, work.size)
    return np.tril(ld), pivots, info


def ldl_solve(ld: Array, pivots: Array, b: Array, hermitian: bool) -> Array:
    """X with a X = b, given the factors of a. (..., N, N), (..., N), (..., N, K) -> (..., N, K)."""
    batch = np.broadcast_shapes(ld.shape[:-2], b.shape[:-2])
    n, k = b.shape[-2:]
    x = _columns(np.broadcast_to(b, (*batch, n, k)))
    if x.size:
        trs = _needed("sytrs" if not _conjugates(ld, hermitian) else "hetrs", ld)
        ld = _columns(np.broadcast_to(ld, (*batch, n, n)))
        pivots = np.ascontiguousarray(np.broadcast_to(pivots, (*batch, n)), INT32)
        for at in np.ndindex(*batch):
            trs(b"L", n, k, ld[at], n, pivots[at], x[at], n)
    return x


def _conjugates(a: Array, hermitian: bool) -> bool:
    return hermitian and a.dtype.kind == "c"


def raising(xp, function: Callable, *args, **options):
    """Call a function of xp.linalg so that it raises numpy.linalg.LinAlgError when it fails; CuPy has to be asked to."""
    if xp is np:
        with np.errstate(all="ignore"):
            return function(*args, **options)
    import cupyx

    with cupyx.errstate(linalg="raise"):
        return function(*args, **options)


# -- the library -----------------------------------------------------------------------------------------------------------


def _on_cpu(a: Array) -> bool:
    """Whether LAPACK can be asked."""
    return type(a) is np.ndarray and _library() is not None


def _needed(name: str, a: Array) -> Callable:
    if type(a) is not np.ndarray:
        raise NotImplementedError(f"{name} is not available on CUDA: move the tensor to the CPU with .cpu() first")
    if _library() is None:
        raise NotImplementedError(
            f"LAPACK's {name} comes with the package scipy-openblas32, which is not installed: pip install scipy-openblas32"
        )
    return _routine(name, a.dtype)


@lru_cache(None)
def _library():
    import ctypes

    path = gemm.blas() or gemm.library()  # bound for products first: that sets its number of threads
    return ctypes.CDLL(path) if path else None


@lru_cache(None)
def _routine(name: str, dtype: np.dtype) -> Callable:
    """A LAPACK routine: called with arrays, ints and letters, it returns `info`, which is its last argument."""
    import ctypes

    bare = _blas_routine(name, dtype)

    def call(*args) -> int:
        info = ctypes.c_int(0)
        bare(*args, ctypes.byref(info))
        if info.value < 0:
            raise ValueError(f"LAPACK's {name} refused its argument {-info.value}")
        return info.value

    return call


@lru_cache(None)
def _blas_routine(name: str, dtype: np.dtype) -> Callable:
    """A Fortran routine of the library. Everything is passed by address; after the arguments come the lengths of the letters."""
    import ctypes

    routine = getattr(_library(), f"scipy_{LETTERS[dtype.name]}{name}_")
    routine.restype = None

    def call(*args) -> None:
        passed = [_address(ctypes, v) for v in args]
        lengths = [ctypes.c_size_t(1) for v in args if type(v) is bytes]
        routine(*passed, *lengths)

    return call


def _address(ctypes, value):
    if type(value) is np.ndarray:
        return ctypes.c_void_p(value.ctypes.data)
    if type(value) is int:
        return ctypes.byref(ctypes.c_int(value))
    return value


def _columns(a: Array) -> Array:
    """A copy in which every matrix is stored column after column, as Fortran has it."""
    *batch, m, n = a.shape
    out = np.empty((*batch, n, m), a.dtype).swapaxes(-1, -2)
    out[...] = a
    return out
