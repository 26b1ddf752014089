"""Scans of arrays: along one dimension, each element of the result reduces all elements up to its own place."""

from __future__ import annotations

import numpy as np

from flambeau import dtypes
from flambeau.kernels import arrays
from flambeau.kernels.arrays import Array
from flambeau.kernels.reduce import dense, unhalved, widest


def scan(name: str, array: Array, dim: int, out_dtype: np.dtype) -> Array:
    """Running `cumsum`, `cumprod` or `logcumsumexp`: fresh, C-contiguous, carried in the widest dtype and rounded to `out_dtype`."""
    xp = arrays.module_of(array)
    rows = unhalved(arrays.cast(array, out_dtype)).reshape(array.shape or (1,))
    with np.errstate(all="ignore"):
        if name == "logcumsumexp":
            found = _logcumsumexp(xp, arrays.cast(rows, widest(out_dtype)), dim)
        else:
            found = getattr(xp, name)(rows, axis=dim, dtype=widest(out_dtype))
        return dense(found.reshape(array.shape), out_dtype, array)


def running_extremum(name: str, array: Array, dim: int) -> tuple[Array, Array]:
    """(values, indices) of `cummax` or `cummin`. Of equal elements the latest counts; once NaN, the rest is NaN."""
    xp = arrays.module_of(array)
    rows = unhalved(array).reshape(array.shape or (1,))
    better = xp.maximum if name == "cummax" else xp.minimum
    values = better.accumulate(rows, axis=dim)
    places = xp.arange(rows.shape[dim]).reshape([-1 if d == dim else 1 for d in range(rows.ndim)])
    found_here = (rows == values) | (rows != rows)
    indices = xp.maximum.accumulate(xp.where(found_here, places, 0), axis=dim)
    return dense(values.reshape(array.shape), array.dtype, array), dense(indices.reshape(array.shape), dtypes.int64.numpy, array)


def _logcumsumexp(xp, rows, dim):
    if rows.dtype.kind != "c":
        return xp.logaddexp.accumulate(rows, axis=dim)
    found = xp.empty_like(rows)
    steps, terms = xp.moveaxis(found, dim, 0), xp.moveaxis(rows, dim, 0)
    for i in range(terms.shape[0]):
        steps[i] = terms[i] if i == 0 else _log_add(xp, steps[i - 1], terms[i])
    return found


def _log_add(xp, a, b):
    """log(exp(a) + exp(b)) of complex numbers, shifted by the larger real part."""
    larger = xp.where(a.real >= b.real, a, b)
    smaller = xp.where(a.real >= b.real, b, a)
    shifted = larger + xp.log1p(xp.exp(smaller - larger))
    return xp.where(xp.isinf(larger.real), larger, shifted)  # inf - inf would be NaN
