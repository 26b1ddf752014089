"""Scans of arrays: along one dimension, each element of the result reduces all elements up to its own place."""

from __future__ import annotations

import numpy as np

from flambeau import dtypes
from flambeau.kernels import arrays
from flambeau.kernels.arrays import Array
from flambeau.kernels.reductions.along_dim import lines
from flambeau.kernels.reductions.reduce import dense, unhalved, widest


def scan(name: str, array: Array, dim: int, out_dtype: np.dtype) -> Array:
    """Running `cumsum`, `cumprod` or `logcumsumexp`: fresh, C-contiguous, carried in the widest dtype and rounded to `out_dtype`."""
    xp = arrays.module_of(array)
    rows = arrays.cast(array, out_dtype)
    rows = rows if rows.ndim else rows.reshape(1)
    compiled = lines(name, rows, dim, indices=False)
    if compiled is not None:
        return arrays.contiguous(compiled[0] if array.ndim else compiled[0].reshape(()))
    rows = unhalved(rows)
    with np.errstate(all="ignore"):
        if name == "logcumsumexp":
            found = _logcumsumexp(xp, arrays.cast(rows, widest(out_dtype)), dim)
        else:
            found = getattr(xp, name)(rows, axis=dim, dtype=widest(out_dtype))
        return dense(found.reshape(array.shape), out_dtype, array)


def running_extremum(name: str, array: Array, dim: int) -> tuple[Array, Array]:
    """(values, indices) of `cummax` or `cummin`. Of equal elements the latest counts; once NaN, the rest is NaN."""
    xp = arrays.module_of(array)
    compiled = lines(name, array.reshape(array.shape or (1,)), dim)
    if compiled is not None:
        return tuple(arrays.contiguous(found.reshape(array.shape)) for found in compiled)
    rows = unhalved(array).reshape(array.shape or (1,))
    better = xp.maximum if name == "cummax" else xp.minimum
    values = accumulated(better, rows, dim)
    places = xp.arange(rows.shape[dim]).reshape([-1 if d == dim else 1 for d in range(rows.ndim)])
    found_here = (rows == values) | (rows != rows)
    indices = accumulated(xp.maximum, xp.where(found_here, places, 0), dim)
    return dense(values.reshape(array.shape), array.dtype, array), dense(indices.reshape(array.shape), dtypes.int64.numpy, array)


def accumulated(combine, rows: Array, dim: int) -> Array:
    """combine.accumulate(rows, dim), for a function that may take its arguments in any grouping.

    CuPy has that for sums and products alone. There, the partial results reach 1, 2, 4, ... elements back.
    """
    if type(rows) is np.ndarray:
        return combine.accumulate(rows, axis=dim)
    found = arrays.module_of(rows).ascontiguousarray(rows).copy()
    steps, reach = arrays.module_of(rows).moveaxis(found, dim, 0), 1
    while reach < rows.shape[dim]:
        steps[reach:] = combine(steps[reach:], steps[:-reach])
        reach *= 2
    return found


def _logcumsumexp(xp, rows, dim):
    if rows.dtype.kind != "c":
        return accumulated(xp.logaddexp if xp is np else lambda a, b: _log_add(xp, a, b), rows, dim)
    found = xp.empty_like(rows)
    steps, terms = xp.moveaxis(found, dim, 0), xp.moveaxis(rows, dim, 0)
    for i in range(terms.shape[0]):
        steps[i] = terms[i] if i == 0 else _log_add(xp, steps[i - 1], terms[i])
    return found


def _log_add(xp, a, b):
    """log(exp(a) + exp(b)), shifted by the larger real part."""
    larger = xp.where(a.real >= b.real, a, b)
    smaller = xp.where(a.real >= b.real, b, a)
    shifted = larger + xp.log1p(xp.exp(smaller - larger))
    return xp.where(xp.isinf(larger.real) & (smaller == smaller), larger, shifted)  # inf - inf would be NaN
