"""Matrix products of arrays: our loops and BLAS on the CPU (see csrc/blas.c), cuBLASLt on CUDA.

Without a BLAS library our loops, where the CPU has them, multiply real numbers alone, and NumPy does the rest. Half precision is
multiplied in float32 and rounded once. BLAS has no integers: product_loops.py has.
"""

from __future__ import annotations

import math
import os
import sys
import threading
from functools import lru_cache

import ml_dtypes
import numpy as np

from flambeau import forks
from flambeau.kernels import arrays
from flambeau.kernels.native import native

HALVES = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
ROWS = 16  # of a product of integers that are computed together
FUNCTIONS = ("sgemm", "dgemm", "cgemm", "zgemm", "sgemv", "dgemv")  # what csrc/blas.c calls
NO_FUNCTIONS = (0,) * len(FUNCTIONS)
# What OpenBLAS reads once, while it is loaded. It starts a thread per CPU, and they spin for 0.1 s, unless it is told not to. And where
# it finds an AMD CPU with AVX-512 and 1 MB of L2, 0.3.34 cuts products as suits its kernels for AVX-512, whichever kernels it takes:
# those for Haswell, asked for by OPENBLAS_CORETYPE, then write past the end of their buffer on the stack. With another size of L2, on
# which only kernels for CPUs without AVX depend else, all cut as they were made to.
WHILE_LOADING = {"OPENBLAS_NUM_THREADS": "1", "OPENBLAS_L2_SIZE": "512"}
_loading = threading.Lock()
forks.renewed(sys.modules[__name__], "_loading", threading.Lock)
CONVERTED = 1 << 26  # elements of half precision that are converted at a time, 256 MB
PIECE = 1 << 14  # elements of a dot product that are added up by one thread
LONG, SMALL, DEPTH = 1 << 14, 1 << 10, 1 << 12  # K and elements of C of a product that is cut along K (see csrc/gemm.c), and K of a piece


@lru_cache(None)
def library() -> str:
    """The path of the OpenBLAS that the package scipy-openblas32 installs; "" where it is not installed."""
    from pathlib import Path  # 3 ms that `import flambeau` need not spend

    for folder in map(Path, sys.path):
        for path in sorted((folder / "scipy_openblas32" / "lib").glob("libscipy_openblas*")):
            if path.suffix in (".so", ".dylib", ".dll"):
                return str(path)
    return ""


@lru_cache(None)
def bound() -> bool:
    """Whether real products run compiled, on our loops or on a BLAS library, which is bound when first asked; else they run on NumPy."""
    if native.lib is None:
        return False
    path = library()
    return native.lib.blas_bind(*(functions(path) if path else NO_FUNCTIONS))


def functions(path: str, prefix: str = "scipy_") -> tuple[int, ...]:
    """The addresses of what csrc/blas.c calls in an OpenBLAS with 32-bit integers."""
    import ctypes

    opened = load(path, prefix)
    return tuple(ctypes.cast(opened[f"{prefix}cblas_{name}"], ctypes.c_void_p).value or 0 for name in FUNCTIONS)


def load(path: str, prefix: str = "scipy_"):
    """An OpenBLAS, on one thread; the same one if it was loaded before."""
    import ctypes

    with _loading:  # threads share the environment
        before = {name: os.environ.get(name) for name in WHILE_LOADING}
        os.environ.update(WHILE_LOADING)
        try:
            opened = ctypes.CDLL(path)
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
    opened[f"{prefix}openblas_set_num_threads"](1)  # it may have been loaded before us
    return opened


def product(a, b):
    """a @ b for arrays (M, K) x (K, N), or (B, M, K) x (B, K, N), of one dtype."""
    found = quick(a, b)
    if found is not NotImplemented:
        return found
    if type(a) is not np.ndarray:
        return arrays.cuda().product(a, b)
    if a.dtype in HALVES:
        return _of_halves(a, b)
    if native.lib is not None:
        if a.ndim == 2 and LONG <= a.shape[1] == b.shape[0] and 0 < a.shape[0] * b.shape[1] <= SMALL:
            for copies in (lambda x: x, arrays.contiguous):  # BLAS reads most views as they are
                found = _long(copies(a), copies(b))
                if found is not NotImplemented:
                    return found
        found = native.lib.matmul(arrays.contiguous(a), arrays.contiguous(b))
        if found is NotImplemented and a.dtype.kind in "iu":
            found = _whole(a, b)
        if found is not NotImplemented:
            return found
    with np.errstate(all="ignore"):
        return np.matmul(a, b)


def _of_halves(a, b):
    """A product in float32, rounded once; a large matrix is converted a part at a time: rows of a, columns of b, or products of a batch."""
    by_columns = a.ndim == 2 and b.size > a.size
    count = b.shape[1] if by_columns else len(a)
    step = max(CONVERTED * count // max(a.size, b.size, 1), 1)
    if step >= count:
        return arrays.cast(product(arrays.cast(a, FLOAT32), arrays.cast(b, FLOAT32)), a.dtype)
    out = arrays.empty_beside(a, (*a.shape[:-1], b.shape[-1]), a.dtype)
    for i in range(0, count, step):
        part = slice(i, i + step)
        if by_columns:
            out[:, part] = _of_halves(a, b[:, part])
        else:
            out[part] = _of_halves(a[part], b[part] if a.ndim == 3 else b)
    return out


def _long(a, b):
    """A small product with a long K, cut along it into pieces of one size, whose products are added in order; NotImplemented if BLAS cannot.

    C alone would be too little to be shared out among threads.
    """
    pieces, rest = divmod(a.shape[1], DEPTH)
    done = pieces * DEPTH
    parts = native.empty((pieces + (rest > 0), a.shape[0], b.shape[1]), a.dtype)
    (down, right), (below, beside) = ([s // x.itemsize for s in x.strides] for x in (a, b))
    left = native.strided_view(a, (pieces, a.shape[0], DEPTH), (right * DEPTH, down, right), 0)
    under = native.strided_view(b, (pieces, DEPTH, b.shape[1]), (below * DEPTH, below, beside), 0)
    for x, y, into in ((left, under, parts[:pieces]), (a[:, done:], b[done:], parts[pieces:]))[: 1 + (rest > 0)]:
        if x.ndim == 2:
            into = into[0]
        if native.lib.gemm(x, y, into, 1, 0, None) is NotImplemented:
            return NotImplemented
    if a.dtype.kind == "c":
        return parts.sum(0)
    out = native.empty(parts.shape[1:], a.dtype)
    native.lib.fold("sum", parts, (1, len(parts), out.size), (0, out.nbytes, out.itemsize), out, None, 1.0)
    return out


def _whole(a, b):
    """The product of integers in compiled loops (see product_loops.py), a few rows at a time; NotImplemented for dtypes without."""
    loop = native.kernel("product.whole")
    if loop is native.not_compiled:
        return NotImplemented
    if a.ndim == 2:
        found = _whole(a[None], b[None])
        return found if found is NotImplemented else found[0]
    b = arrays.contiguous(b)
    (count, rows, depth), cols = a.shape, b.shape[2]
    out = native.empty((count, rows, cols), a.dtype)
    if not out.size or not depth:
        return np.zeros(out.shape, out.dtype)
    apart, down, right = (s // a.itemsize for s in a.strides)
    for first, blocks, some in ((0, rows // ROWS, ROWS), (rows // ROWS * ROWS, 1, rows % ROWS)):
        if blocks * some:
            shape, at = (count, blocks), native.strided_view
            seen = at(out, shape, (rows * cols, some * cols), first * cols), at(a, shape, (apart, some * down), first * down)
            numbers = (max(some * depth * cols, 1), some, depth, cols, down, right, cols, cols)
            if loop.into(*seen, at(b, shape, (depth * cols, 0), 0), *numbers) is NotImplemented:
                return NotImplemented
    return out


def dot(a, b):
    """The sum of a * b for vectors (K) of one dtype, as an array (). Long ones are shared out among threads, a piece at a time."""
    pieces, loop = a.size // PIECE, native.kernel("product.dot")
    if pieces < 2 or loop is native.not_compiled or type(a) is not np.ndarray or not (a.flags.c_contiguous and b.flags.c_contiguous):
        return product(a[None, :], b[:, None]).reshape(())
    rest = a.size - pieces * PIECE
    count = pieces + (rest > 0)
    totals, out = native.empty((count, 8), FLOAT64), native.empty((), FLOAT64)  # a line of the cache for each: threads write them
    for first, some, length in ((0, pieces, PIECE), (pieces, 1, rest))[: 1 + (rest > 0)]:
        at = native.strided_view(totals, (some,), (8,), first * 8)
        seen = [native.strided_view(x, (some,), (length,), first * PIECE) for x in (a, b)]
        if loop.into(at, *seen, length) is NotImplemented:
            return product(a[None, :], b[:, None]).reshape(())
    native.lib.fold("sum", totals, (1, count, 1), (0, 64, 0), out, None, float(count))
    return arrays.cast(out, a.dtype)


def _bind_first(a, b):
    """`quick` before its first use: finds the library, then gives way to what it was bound to."""
    global quick
    bound()
    quick = native.not_compiled if native.lib is None else native.lib.matmul
    return quick(a, b)


def _bind_linear_first(input, weight, bias):
    """`quick_linear` before its first use."""
    global quick_linear
    bound()
    quick_linear = native.not_compiled if native.lib is None else native.lib.linear
    return quick_linear(input, weight, bias)


# The compiled product: a @ b as above, or NotImplemented where shapes, dtypes, strides or devices are not what BLAS takes.
quick = _bind_first
# The compiled input @ weight.T + bias for input (*, in), weight (out, in), bias (out,), all dense; else NotImplemented.
quick_linear = _bind_linear_first


def product_at_once(a, b):
    """a @ b for two matrices, where there is nothing to check or to adapt; else NotImplemented."""
    if a.ndim != 2:
        return NotImplemented
    found = quick(a, b)
    return arrays.cuda_room.usual_product(a, b) if found is NotImplemented and arrays.on_only_gpu(a) else found


def linear_at_once(input, weight, bias):
    """input @ weight.T + bias, where there is nothing to check or to adapt; else NotImplemented."""
    return arrays.cuda_room.linear(input, weight, bias) if arrays.on_gpu(input) else quick_linear(input, weight, bias)


def batched(a, b):
    """a @ b for arrays (..., M, K) x (..., K, N) of one dtype, whose leading dimensions broadcast."""
    if a.ndim == b.ndim == 2:
        return product(a, b)
    (m, k), n = a.shape[-2:], b.shape[-1]
    if b.ndim == 2:  # the leading dimensions are rows too: one product instead of many
        return product(a.reshape(math.prod(a.shape[:-1]), k), b).reshape(*a.shape[:-1], n)
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    count = math.prod(lead)
    xp = arrays.module_of(a)
    left = xp.broadcast_to(a, (*lead, m, k)).reshape(count, m, k)
    right = xp.broadcast_to(b, (*lead, k, n)).reshape(count, k, n)
    return product(left, right).reshape(*lead, m, n)


def product_into(out, a, b, alpha, beta, addend=None):
    """out = alpha a @ b + beta addend, which is `out` itself unless given, and repeats to its shape. beta = 0 ignores what it holds."""
    if type(out) is np.ndarray and out.dtype in HALVES:
        arrays.write(out, _product_of_halves(out, a, b, alpha, beta, addend))
        return out
    compiled = type(out) is np.ndarray and native.lib is not None
    if compiled:
        bound()
        row = None if addend is None or beta == 0 else addend
        if (row is None or row.ndim == 1) and native.lib.gemm(a, b, out, alpha, beta, row) is not NotImplemented:
            return out
    there = type(out) is not np.ndarray
    if there and addend is not None and arrays.cuda().product_into(out, a, b, alpha, beta, addend) is not NotImplemented:
        return out
    if addend is not None and beta != 0:
        arrays.write(out, addend)
    if compiled:
        for copies in (lambda x: x, arrays.contiguous):  # BLAS reads most views as they are
            if native.lib.gemm(copies(a), copies(b), out, alpha, beta, None) is not NotImplemented:
                return out
    if there and arrays.cuda().product_into(out, a, b, alpha, beta) is not NotImplemented:
        return out
    wide = FLOAT32 if out.dtype in HALVES else out.dtype
    total = product(arrays.cast(a, wide), arrays.cast(b, wide))
    with np.errstate(all="ignore"):
        if alpha != 1:
            total *= _factor(alpha, wide)
        if beta != 0:
            total += arrays.cast(out, wide) if beta == 1 else arrays.cast(out, wide) * _factor(beta, wide)
    arrays.write(out, total)
    return out


def _product_of_halves(out, a, b, alpha, beta, addend):
    """alpha a @ b + beta addend in float32: everything is widened once, and the sum is rounded by whoever stores it."""
    found = native.empty(out.shape, FLOAT32)
    added = None if beta == 0 else arrays.cast(out if addend is None else addend, FLOAT32)
    return product_into(found, arrays.cast(a, FLOAT32), arrays.cast(b, FLOAT32), alpha, beta, added)


def _factor(number, dtype: np.dtype):
    """A Python number as a scalar of the dtype it multiplies; for integers its fraction is cut off."""
    return dtype.type(int(number) if dtype.kind in "iu" else number)
