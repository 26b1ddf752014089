"""Products of sparse matrices with dense ones, on arrays: by the loops of sparse_loops.py, or by NumPy or CuPy where there are none.

A sparse matrix is given as its rows (CSR): the places crow[i] ... crow[i + 1] - 1 of `col` and `values` are those of row i.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau.kernels import arrays
from flambeau.kernels.indexing import gather
from flambeau.kernels.native import native

Array = Any
INT64, FLOAT32 = np.dtype(np.int64), np.dtype(np.float32)
AT_ONCE = 1 << 20  # elements that are gathered at a time where there is no loop


def product(crow: Array, col: Array, values: Array, dense: Array) -> Array:
    """The rows of a sparse matrix times a dense one. (M + 1), (nnz), (nnz), (K, N) -> (M, N)."""
    if _is_half(values):
        return arrays.cast(product(crow, col, arrays.cast(values, FLOAT32), arrays.cast(dense, FLOAT32)), values.dtype)
    crow, col = arrays.contiguous(arrays.cast(crow, INT64)), arrays.contiguous(arrays.cast(col, INT64))
    _check_rows(crow, col.shape[0])
    gather.check(col, dense.shape[0], 1)
    rows, width = crow.shape[0] - 1, dense.shape[1]
    out = arrays.empty_beside(values, (rows, width), values.dtype)
    if not out.size:
        return out
    values = arrays.contiguous(values)
    if type(out) is np.ndarray and native.lib is not None and col.size:
        dense = dense if dense[0].flags.c_contiguous else arrays.contiguous(dense)
        cost = max(1, col.size // rows) * width
        operands = crow[:-1], *map(_first, (col, values, dense))
        if native.kernel("csr.product").into(out[:, 0], *operands, cost, width, dense.strides[0]) is not NotImplemented:
            return out
    arrays.fill(out, 0)
    of_places = expanded(crow)
    for start in range(0, col.shape[0], step := max(1, AT_ONCE // width)):
        some = slice(start, start + step)
        gather.add_rows(out, 0, of_places[some], values[some, None] * gather.take_rows(dense, 0, col[some]))
    return out


def dots(row: Array, col: Array, a: Array, b: Array) -> Array:
    """The scalar products of some rows of two matrices, row[k] of one with col[k] of the other. (nnz), (nnz), (M, N), (K, N) -> (nnz)."""
    if _is_half(a):
        return arrays.cast(dots(row, col, arrays.cast(a, FLOAT32), arrays.cast(b, FLOAT32)), a.dtype)
    row, col = arrays.contiguous(arrays.cast(row, INT64)), arrays.contiguous(arrays.cast(col, INT64))
    gather.check(row, a.shape[0], 0)
    gather.check(col, b.shape[0], 1)
    width = a.shape[1]
    out = arrays.zeros(row.shape, a.dtype, arrays.device_of(a))
    if not out.size or not width:
        return out
    if type(out) is np.ndarray and native.lib is not None:
        a, b = (m if m[0].flags.c_contiguous else arrays.contiguous(m) for m in (a, b))
        if native.kernel("csr.dots").into(out, row, col, *map(_first, (a, b)), width, a.strides[0], b.strides[0]) is not NotImplemented:
            return out
    for start in range(0, row.shape[0], step := max(1, AT_ONCE // width)):
        some = slice(start, start + step)
        out[some] = (gather.take_rows(a, 0, row[some]) * gather.take_rows(b, 0, col[some])).sum(axis=1)
    return out


def expanded(crow: Array) -> Array:
    """The row of every place. (M + 1) -> (nnz)."""
    xp = arrays.module_of(crow)
    rows = xp.arange(crow.shape[0] - 1, dtype=np.int64)
    counts = crow[1:] - crow[:-1]
    return xp.repeat(rows, counts if xp is np else counts.tolist())


def _check_rows(crow: Array, places: int) -> None:
    """RuntimeError unless the rows lie one after the other within the places."""
    if crow.shape[0] and (int(crow[0]) < 0 or int(crow[-1]) > places or bool((crow[1:] < crow[:-1]).any())):
        raise RuntimeError(f"crow_indices must rise from 0 to the number of places, which is {places}; try check_invariants=True")


def _first(array: np.ndarray) -> np.ndarray:
    """The first element as an array of no dimension: to a loop, where the others begin."""
    return array.reshape(-1)[:1].reshape(()) if array.flags.c_contiguous else array[(slice(1),) * array.ndim].reshape(())


def _is_half(array: Array) -> bool:
    return array.dtype.itemsize == 2 and array.dtype.kind in "fV"
