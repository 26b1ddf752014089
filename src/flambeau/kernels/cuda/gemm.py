"""Matrix products on a GPU, by cuBLAS.

cuBLAS counts columns first, tensors count rows first; but C = A B by rows is C^T = B^T A^T by columns, in the very same memory. So the
factors are handed over in reverse order, and a factor stored column after column is one that cuBLAS is asked to transpose: nothing is
copied unless neither of a matrix's two strides is 1.

Half precision is multiplied by the tensor cores, summed in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import cupy
import ml_dtypes
import numpy as np
from cupy.cuda import runtime
from cupy.cuda.device import get_cublas_handle

from flambeau.kernels.cuda.launch import compiled, where_it_is
from flambeau.kernels.language.print_cuda import THREADS

PLAIN, TRANSPOSED = 0, 1  # cublasOperation_t
DEFAULT_ALGORITHM = -1  # cublasGemmAlgo_t


class Kind(NamedTuple):
    """How cuBLAS names a dtype: of the elements, of the computation, and the NumPy dtype of alpha and beta."""

    data: int
    compute: int
    scalar: np.dtype


KINDS = {
    np.dtype(np.float16): Kind(2, 68, np.dtype(np.float32)),
    np.dtype(ml_dtypes.bfloat16): Kind(14, 68, np.dtype(np.float32)),
    np.dtype(np.float32): Kind(0, 68, np.dtype(np.float32)),
    np.dtype(np.float64): Kind(1, 70, np.dtype(np.float64)),
    np.dtype(np.complex64): Kind(4, 68, np.dtype(np.complex64)),
    np.dtype(np.complex128): Kind(5, 70, np.dtype(np.complex128)),
}
TF32 = 77  # float32 and complex64 with factors shortened to 10 bits behind the point
allow_tf32 = False  # set by whoever offers the choice to users


@where_it_is(0)
def product(a, b):
    """a @ b for arrays (M, K) x (K, N), or (B, M, K) x (B, K, N), of one dtype. Fresh and contiguous."""
    if a.dtype not in KINDS:
        return cupy.matmul(a, b)  # integers: CuPy has a kernel of its own
    out = cupy.ndarray((*a.shape[:-1], b.shape[-1]), a.dtype)
    _multiply(out, a, b, 1, 0)
    return out


def usual_product(a, b):
    """a @ b for matrices (M, K) and (K, N) of one dtype, none of them empty, on the current GPU; else NotImplemented."""
    if type(b) is not type(a) or b.ndim != 2 or a.dtype != b.dtype or a.dtype not in KINDS or not a.size or not b.size:
        return NotImplemented
    (m, k), (rows, n), here = a.shape, b.shape, runtime.getDevice()
    if k != rows or a.data.device_id != here or b.data.device_id != here:
        return NotImplemented
    out = cupy.ndarray((m, n), a.dtype)
    _multiply(out, a, b, 1, 0)
    return out


def linear(x, weight, bias):
    """x weight^T + bias for x (*, K), weight (N, K) and bias (N,), dense and of one dtype, on the current GPU; else NotImplemented."""
    dtype, kind = x.dtype, KINDS.get(x.dtype)
    if kind is None or not type(x) is type(weight) is type(bias) or not dtype == weight.dtype == bias.dtype:
        return NotImplemented
    if weight.ndim != 2 or not x.ndim or x.shape[-1] != weight.shape[1] or bias.shape != weight.shape[:1] or not x.size or not weight.size:
        return NotImplemented
    here = runtime.getDevice()
    if not (x._c_contiguous and weight._c_contiguous and bias._c_contiguous) or any([a.data.device_id != here for a in (x, weight, bias)]):
        return NotImplemented
    n, k = weight.shape
    m = x.size // k
    out = cupy.ndarray((*x.shape[:-1], n), dtype)
    kernel = _repeat_kernel(dtype.itemsize, here)
    kernel((-(-n // THREADS), min(m, MOST_ROWS)), (THREADS,), (out.data.ptr, bias.data.ptr, m, n))
    compute = TF32 if allow_tf32 and dtype.char in "fF" else kind.compute
    ones = _scalars(kind.scalar, 1, 1)
    _cublas().gemmEx(
        get_cublas_handle(), TRANSPOSED, PLAIN, n, m, k, ones, weight.data.ptr, kind.data, k, x.data.ptr, kind.data, k, ones,
        out.data.ptr, kind.data, n, compute, DEFAULT_ALGORITHM,
    )  # fmt: skip
    return out


MOST_ROWS = 4096  # blocks one above the other: each takes several rows then
WORDS = {2: "unsigned short", 4: "unsigned", 8: "unsigned long long", 16: "ulonglong2"}


@lru_cache(None)
def _repeat_kernel(size: int, device: int):
    return compiled(_print_repeat, f"fl_repeat_{size}", device, f"fl_repeat_{size}", WORDS[size])


def _print_repeat(name: str, word: str) -> str:
    """A row, repeated in all rows of a matrix."""
    return f"""
extern "C" __global__ void
{name}({word} *out, const {word} *row, long long rows, long long columns) {{
    const long long at = blockIdx.x * {THREADS}LL + threadIdx.x;
    if (at >= columns) return;
    const {word} x = row[at];
    for (long long r = blockIdx.y; r < rows; r += gridDim.y) out[r * columns + at] = x;
}}
"""


@where_it_is(0)
def product_into(out, a, b, alpha, beta):
    """out = alpha a @ b + beta out, in place, where out is contiguous and of a dtype that cuBLAS knows; else NotImplemented.

    beta = 0 ignores what out holds.
    """
    if out.dtype not in KINDS or not out.flags.c_contiguous or a.dtype != out.dtype or b.dtype != out.dtype:
        return NotImplemented
    _multiply(out, a, b, alpha, beta)
    return out


@lru_cache(1)
def _cublas():
    """The library, which CuPy loads on this import: not every program multiplies."""
    from cupy.cuda import cublas

    return cublas


def _multiply(out, a, b, alpha, beta) -> None:
    (m, k), n = a.shape[-2:], b.shape[-1]
    if not out.size:
        return
    if not k:
        out *= beta
        if not beta:  # and not NaN, which 0 times NaN is
            out.fill(0)
        return
    kind = KINDS[out.dtype]
    compute = TF32 if allow_tf32 and out.dtype.char in "fF" else kind.compute
    factors = _scalars(kind.scalar, alpha, beta)
    first, second = _matrix(a), _matrix(b)
    common = (get_cublas_handle(), second.form, first.form, n, m, k, factors)
    element = kind.scalar.itemsize
    if a.ndim == 2:
        _cublas().gemmEx(
            *common, second.pointer, kind.data, second.lead, first.pointer, kind.data, first.lead, factors + element,
            out.data.ptr, kind.data, n, compute, DEFAULT_ALGORITHM,
        )  # fmt: skip
        return
    _cublas().gemmStridedBatchedEx(
        *common, second.pointer, kind.data, second.lead, second.batch, first.pointer, kind.data, first.lead, first.batch, factors + element,
        out.data.ptr, kind.data, n, m * n, a.shape[0], compute, DEFAULT_ALGORITHM,
    )  # fmt: skip


def with_rows(weight, form: int, beta: int) -> Callable[[int, int, int], None]:
    """A function (rows, a, out) that makes out = a @ weight (TRANSPOSED: a @ weight.T) + beta out of contiguous matrices found by address.

    For one matrix that meets many others: all that does not change is found out once. weight is contiguous, and on the current device.
    """
    kind, (k, n) = KINDS[weight.dtype], weight.shape if form == PLAIN else weight.shape[::-1]
    compute = TF32 if allow_tf32 and weight.dtype.char == "f" else kind.compute
    alpha = _scalars(kind.scalar, 1, beta)
    handle, pointer, lead, multiply, element = get_cublas_handle(), weight.data.ptr, weight.shape[1], _cublas().gemmEx, kind.scalar.itemsize

    def product(rows: int, a: int, out: int) -> None:
        multiply(
            handle, form, PLAIN, n, rows, k, alpha, pointer, kind.data, lead, a, kind.data, k, alpha + element, out, kind.data, n, compute,
            DEFAULT_ALGORITHM,
        )  # fmt: skip

    return product


class Matrix(NamedTuple):
    """A factor as cuBLAS takes it. `owner` keeps the memory alive until the product has been launched."""

    pointer: int
    form: int
    lead: int  # the distance between rows, or columns
    batch: int  # and between matrices
    owner: object


def _matrix(x) -> Matrix:
    """The array itself, if one of its two strides is 1 and the other long enough; else a copy of it."""
    rows, columns = x.shape[-2:]
    if x._c_contiguous and x.ndim == 2:
        return Matrix(x.data.ptr, PLAIN, max(columns, 1), 0, x)
    size = x.itemsize
    row_step, column_step = (s // size for s in x.strides[-2:])
    batch = x.strides[0] // size if x.ndim == 3 else 0
    if batch >= 0:
        # A dimension of size 1 may have any stride.
        if (column_step == 1 or columns == 1) and (row_step >= max(columns, 1) or rows == 1):
            return Matrix(x.data.ptr, PLAIN, max(row_step if rows > 1 else columns, 1), batch, x)
        if (row_step == 1 or rows == 1) and (column_step >= max(rows, 1) or columns == 1):
            return Matrix(x.data.ptr, TRANSPOSED, max(column_step if columns > 1 else rows, 1), batch, x)
    copy = cupy.ascontiguousarray(x)
    return Matrix(copy.data.ptr, PLAIN, columns, rows * columns, copy)


_kept: dict[tuple, tuple[int, np.ndarray]] = {}


def _scalars(dtype: np.dtype, alpha, beta) -> int:
    """The address of (alpha, beta) in main memory. cuBLAS reads them during the call; the usual pairs stay."""
    key = (dtype.char, alpha, beta)
    found = _kept.get(key)
    if found is None:
        if len(_kept) > 1000:
            _kept.clear()
        pair = np.array([alpha, beta]).astype(dtype)
        found = _kept[key] = pair.ctypes.data, pair
    return found[0]
