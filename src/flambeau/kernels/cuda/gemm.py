"""Matrix products on a GPU, by cuBLASLt (cublaslt.py).

A factor may lie by rows or by columns, with any distance between them: nothing is copied unless neither of a matrix's two strides is 1. How a product of
arrays that look like these is to be done is found out once.

Half precision is multiplied by the tensor cores, summed in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import cupy
import numpy as np
from cupy.cuda import runtime

from flambeau.kernels import arrays, libraries
from flambeau.kernels.cuda.cublaslt import ALIGNED, KINDS, Factor, Product
from flambeau.kernels.cuda.launch import empty, where_it_is

NUMBERED = {dtype.num: dtype for dtype in KINDS}  # the hash of a number is quicker than that of a dtype
WITH_BIAS = "efE"  # dtypes (float16, float32, bfloat16) of which the library adds a row to all rows of a product
COPY_FIRST, COPY_SECOND, BIAS_BEFORE = range(3)  # what is to be done before there is a product to be carried out


@where_it_is(0)
def product(a, b):
    """a @ b for arrays (M, K) x (K, N), or (B, M, K) x (B, K, N), of one dtype. Fresh and contiguous."""
    if a.dtype.num not in NUMBERED:
        return cupy.matmul(a, b)  # integers: CuPy has a kernel of its own
    out = empty((*a.shape[:-1], b.shape[-1]), a.dtype)
    _multiply(out, a, b, 1, 0)
    return out


def usual_product(a, b):
    """a @ b for matrices (M, K) and (K, N) of one dtype, none of them empty, on the current GPU; else NotImplemented."""
    if type(b) is not type(a) or b.ndim != 2 or a.dtype != b.dtype or a.dtype.num not in NUMBERED or not a.size or not b.size:
        return NotImplemented
    (m, k), (rows, n), here = a.shape, b.shape, runtime.getDevice()
    if k != rows or a.data.device_id != here or b.data.device_id != here:
        return NotImplemented
    out = empty((m, n), a.dtype)
    _multiply(out, a, b, 1, 0)
    return out


def linear(x, weight, bias):
    """x weight^T + bias for x (*, K), weight (N, K) and bias (N,), dense and of one dtype, on the current GPU; else NotImplemented."""
    dtype = x.dtype
    if dtype.char not in WITH_BIAS or not type(x) is type(weight) is type(bias) or not dtype == weight.dtype == bias.dtype:
        return NotImplemented
    if weight.ndim != 2 or not x.ndim or x.shape[-1] != weight.shape[1] or bias.shape != weight.shape[:1] or not x.size or not weight.size:
        return NotImplemented
    here = runtime.getDevice()
    if not (x._c_contiguous and bias._c_contiguous) or any([a.data.device_id != here for a in (x, weight, bias)]):
        return NotImplemented
    out = empty((*x.shape[:-1], weight.shape[0]), dtype)
    rows = x if x.ndim == 2 else x.reshape(-1, x.shape[-1])
    _multiply(out, rows, weight.T, 1, 0, bias)
    return out


@where_it_is(0)
def product_into(out, a, b, alpha, beta, row=None):
    """out = alpha a @ b + beta out, in place, where out is contiguous and of a dtype that cuBLASLt knows; else NotImplemented.

    beta = 0 ignores what out holds. `row`, if there is one, is added to every row of the product instead of `out`, times one.
    """
    if out.dtype.num not in NUMBERED or not out.flags.c_contiguous or a.dtype != out.dtype or b.dtype != out.dtype:
        return NotImplemented
    if row is None:
        _multiply(out, a, b, alpha, beta)
        return out
    fits = out.dtype.char in WITH_BIAS and row.shape == out.shape[-1:] and row.dtype == out.dtype and row.flags.c_contiguous
    if not fits or not a.size or not out.size or beta != 1 or row.data.device_id != out.data.device_id:
        return NotImplemented
    _multiply(out, a, b, alpha, 0, row)
    return out


def _multiply(out, a, b, alpha, beta, bias=None) -> None:
    first, second, result = a.data.ptr, b.data.ptr, out.data.ptr
    addresses = first | second | result | (0 if bias is None else bias.data.ptr)
    plan = _plan(
        out.dtype.num, a.shape, a.strides, b.shape, b.strides, min(addresses & -addresses, ALIGNED), bias is not None, libraries.products,
        runtime.getDevice(),
    )  # fmt: skip
    if type(plan) is Product:
        factors = plan.once if alpha == 1 and not beta else _scalars(plan.kind.scalar, alpha, beta)
        plan.run(factors, first, second, result, 0 if bias is None else bias.data.ptr)
    elif plan == COPY_FIRST:
        _multiply(out, cupy.ascontiguousarray(a), b, alpha, beta, bias)
    elif plan == COPY_SECOND:
        _multiply(out, a, cupy.ascontiguousarray(b), alpha, beta, bias)
    elif plan == BIAS_BEFORE:
        arrays.write(out, bias)
        _multiply(out, a, b, alpha, 1)
    elif not beta:  # nothing is added up
        out.fill(0)  # and not NaN, which 0 times NaN is
    else:
        out *= beta


@lru_cache(4096)
def _plan(
    number: int, a: tuple, a_strides: tuple, b: tuple, b_strides: tuple, alignment: int, bias: bool, switches: int, device: int
) -> Product | int | None:  # fmt: skip
    """How arrays of these shapes and strides are multiplied: a `Product`, what is to be done first, or None where there is nothing to add up."""
    (*count, rows, depth), columns = a, b[-1]
    if 0 in a or 0 in b:
        return None
    dtype = NUMBERED[number]
    first, second = _factor(a, a_strides, dtype.itemsize), _factor(b, b_strides, dtype.itemsize)
    if first is None:
        return COPY_FIRST
    if second is None:
        return COPY_SECOND
    found = Product(dtype, rows, depth, columns, first, second, count[0] if count else 0, alignment, bias, switches)
    if not found.algorithm and bias:
        return BIAS_BEFORE
    if not found.algorithm:
        raise RuntimeError(f"cuBLASLt has no algorithm for a product of {dtype} matrices of shapes {a} and {b}")
    return found


def _factor(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> Factor | None:
    """How matrices lie in memory, if one of their two strides is 1 and the other long enough."""
    (rows, columns), (row_step, column_step) = shape[-2:], [s // size for s in strides[-2:]]
    step = strides[0] // size if len(shape) == 3 else 0
    if step < 0:
        return None
    # A dimension of size 1 may have any stride.
    if (column_step == 1 or columns == 1) and (row_step >= max(columns, 1) or rows == 1):
        return Factor(False, row_step if rows > 1 else columns, step)
    if (row_step == 1 or rows == 1) and (column_step >= max(rows, 1) or columns == 1):
        return Factor(True, column_step if columns > 1 else rows, step)
    return None


def with_rows(weight, turned: bool, beta: int) -> Callable[[int, int, int], None]:
    """A function (rows, a, out) that makes out = a @ weight (`turned`: a @ weight.T) + beta out of contiguous matrices found by address.

    For one matrix that meets many others: all that does not change is found out once. weight is contiguous, and on the current device.
    """
    shape, strides, size, number = weight.shape, weight.strides, weight.itemsize, weight.dtype.num
    if turned:
        shape, strides = shape[::-1], strides[::-1]
    pointer, device, switches, depth = weight.data.ptr, weight.data.device_id, libraries.products, shape[0]

    def product(rows: int, a: int, out: int) -> None:
        addresses = a | pointer | out
        plan = _plan(
            number, (rows, depth), (depth * size, size), shape, strides, min(addresses & -addresses, ALIGNED), False, switches, device
        )
        if isinstance(plan, Product):
            plan.run(_scalars(plan.kind.scalar, 1, beta), a, pointer, out)

    return product


_kept: dict[tuple, tuple[int, np.ndarray]] = {}


def _scalars(dtype: np.dtype, alpha, beta) -> int:
    """The address of (alpha, beta) in main memory. They are read during the call; the usual pairs stay."""
    key = (dtype.char, alpha, beta)
    found = _kept.get(key)
    if found is None:
        if len(_kept) > 1000:
            _kept.clear()
        pair = np.array([alpha, beta]).astype(dtype)
        found = _kept[key] = pair.ctypes.data, pair
    return found[0]
