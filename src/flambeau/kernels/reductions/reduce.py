"""Reductions of arrays: many elements become one value.

Everything above asks `reduce(name, ...)`; `variance` stands beside it because it has two results. Digits are kept by adding in the
widest dtype of the kind (float64, complex128, int64) and rounding once at the end, so a float32 sum is right along any axis, in any
memory order. Maxima and minima propagate NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod

import numpy as np

from flambeau import dtypes
from flambeau.kernels import arrays
from flambeau.kernels.arrays import Array
from flambeau.kernels.reductions import folding

HALVES = (dtypes.float16.numpy, dtypes.bfloat16.numpy)


def reduce(name: str, array: Array, dims: tuple[int, ...], keepdim: bool, out_dtype: np.dtype) -> Array:
    """Fold the dimensions `dims` into one value: fresh, C-contiguous, of dtype `out_dtype`.

    name  sum, nansum, mean, prod, max, min, any, all, count_nonzero, logsumexp

    Max and min of nothing have no value: the caller has checked that there is at least one element.
    """
    compiled = _compiled_logsumexp if name == "logsumexp" else partial(folding.fold, name)
    found = compiled(array, dims, keepdim, out_dtype)
    if found is not None:
        return found
    with np.errstate(all="ignore"):
        found = FOLDS[name](arrays.module_of(array), array, dims, keepdim, out_dtype)
    return dense(found, out_dtype, array)


def extremum(name: str, array: Array, dims: tuple[int, ...], keepdim: bool) -> tuple[Array, Array]:
    """(values, indices) of the "max" or "min" along one dimension, or over all, where the index counts the elements in order.

    The first one, where several are equal, or NaN. The caller has checked that there is at least one element.
    """
    found = folding.positions(name, array, dims, keepdim)
    if found is not None:
        return found
    line, dim = (array.reshape(-1), 0) if len(dims) == array.ndim else (array, dims[0])
    xp, kept = arrays.module_of(array), tuple(1 if d in dims else n for d, n in enumerate(array.shape) if keepdim or d not in dims)
    indices = getattr(xp, f"arg{name}")(unhalved(line), axis=dim, keepdims=True)
    values = xp.take_along_axis(line, indices, dim)
    return dense(values.reshape(kept), array.dtype, array), dense(indices.reshape(kept), dtypes.int64.numpy, array)


def _compiled_logsumexp(array: Array, dims: tuple[int, ...], keepdim: bool, out_dtype: np.dtype) -> Array | None:
    """The maximum first, so that no exponential overflows; where it is infinite there is nothing to shift by."""
    peak = folding.fold("max", array, dims, keepdim, out_dtype) if array.dtype == out_dtype and array.size else None
    if peak is None:
        return None
    shift = _doubles(peak)
    shift[~arrays.module_of(shift).isfinite(shift)] = 0.0
    return folding.fold("logsumexp", array, dims, keepdim, out_dtype, shift)


def _doubles(array: Array) -> Array:
    """A C-contiguous float64 array: numbers for the compiled loops to shift by."""
    return arrays.contiguous(arrays.cast(array, dtypes.float64.numpy))


def variance(array: Array, dims: tuple[int, ...], keepdim: bool, correction: float, root: bool = False) -> tuple[Array, Array]:
    """(variance, mean): the mean squared distance from the mean, where `correction` is subtracted from the number of elements.

    With `root` its square root, the standard deviation.

    Two passes in double precision: the mean first, then distances from it, so that a large mean costs no digits.
    """
    xp = arrays.module_of(array)
    n = count(array.shape, dims)
    if array.dtype in HALVES:
        return tuple(arrays.cast(found, array.dtype) for found in variance(unhalved(array), dims, keepdim, correction, root))
    found = folding.spread("std" if root else "var", array, dims, keepdim, float(max(n - correction, 0)))
    if found is not None:
        return found
    # The compiled loop measures distances from the mean as it is stored. For float32 that mean is the double one, rounded, which is near
    # enough, and exact where all elements are equal. For float64 the mean of three equal elements can miss them by a digit: look again.
    if array.dtype in (np.float32, np.float64):
        mean = folding.fold("mean", array, dims, keepdim, array.dtype)
        if mean is not None:
            shift = _doubles(mean)
            if array.dtype == np.float64:
                off = folding.fold("off", array, dims, keepdim, array.dtype, mean)
                with np.errstate(invalid="ignore"):
                    shift = xp.add(mean, off, off)
            return folding.fold("std" if root else "var", array, dims, keepdim, array.dtype, shift, max(n - correction, 0)), mean
    with np.errstate(all="ignore"):
        wide = arrays.cast(array, widest(array.dtype))
        mean = xp.true_divide(xp.sum(wide, axis=dims, keepdims=True), n)
        off = wide - mean
        # The mean was rounded; without this second look at it, equal elements would not have variance 0.
        off = off - xp.true_divide(xp.sum(off, axis=dims, keepdims=True), n)
        squares = off * off if off.dtype.kind == "f" else off.real * off.real + off.imag * off.imag
        var = xp.true_divide(xp.sum(squares, axis=dims, keepdims=keepdim), max(n - correction, 0))
        var = xp.sqrt(var) if root else var
        real = dtypes.OF_NUMPY[array.dtype].to_real().numpy
        mean = mean.reshape(var.shape)
        return dense(var, real, array), dense(mean, array.dtype, array)


def variance_ready(array: np.ndarray, dims: tuple[int, ...], keepdim: bool, correction: float, root: bool) -> Callable | None:
    """What `variance` does with float32 arrays like this one, as a function of them; else None."""
    if array.dtype != np.float32 or not array.size:
        return None
    mean = folding.ready("mean", array, dims, keepdim, array.dtype)
    spread = None if mean is None else folding.ready("std" if root else "var", array, dims, keepdim, array.dtype)
    left = float(max(count(array.shape, dims) - correction, 0))

    def run(array):
        about = mean(array)
        if about is NotImplemented:
            return about
        found = spread(array, about.astype(np.float64), left)
        return found if found is NotImplemented else (found, about)

    return None if spread is None else run


def count(shape: tuple[int, ...], dims: tuple[int, ...]) -> int:
    """How many elements go into each result."""
    return prod([shape[d] for d in dims])


def widest(dtype: np.dtype) -> np.dtype:
    """The dtype sums are carried in: the widest of the same kind."""
    kind = dtype.kind  # bfloat16's is not "f": NumPy did not invent it
    return np.dtype(np.int64 if kind in "biu" else np.complex128 if kind == "c" else np.float64)


def unhalved(array: Array) -> Array:
    """Half precision as float32, exactly: NumPy has no fast loops for it, and for bfloat16 often none at all."""
    return arrays.cast(array, dtypes.float32.numpy) if array.dtype in HALVES else array


def dense(found, dtype: np.dtype, like: Array) -> Array:
    """A result as a C-contiguous array of the dtype asked for; NumPy answers 0-d questions with scalars."""
    xp = arrays.module_of(like)
    with np.errstate(all="ignore"):
        return xp.asarray(found, dtype=dtype, order="C")


# -- one function per name: (module, array, dims, keepdim, out_dtype) -> array of any dtype --------------------------------


def _as_summed(array: Array, out_dtype: np.dtype) -> Array:
    """Elements in the dtype of the result before they are added: a float summed as int64 is truncated first, as PyTorch does."""
    if array.dtype.kind in "biu" and out_dtype.kind in "iu":
        return array
    return unhalved(arrays.cast(array, out_dtype))


def _sum(xp, array, dims, keepdim, out_dtype):
    return xp.sum(_as_summed(array, out_dtype), axis=dims, keepdims=keepdim, dtype=widest(out_dtype))


def _nansum(xp, array, dims, keepdim, out_dtype):
    array = _as_summed(array, out_dtype)
    if array.dtype.kind == "f":
        array = xp.where(xp.isnan(array), array.dtype.type(0), array)
    return xp.sum(array, axis=dims, keepdims=keepdim, dtype=widest(out_dtype))


def _mean(xp, array, dims, keepdim, out_dtype):
    return xp.true_divide(_sum(xp, array, dims, keepdim, out_dtype), count(array.shape, dims))


def _prod(xp, array, dims, keepdim, out_dtype):
    array = _as_summed(array, out_dtype)
    return xp.prod(array, axis=dims, keepdims=keepdim, dtype=widest(out_dtype) if out_dtype.kind in "iu" else array.dtype)


def _logsumexp(xp, array, dims, keepdim, out_dtype):
    array = unhalved(arrays.cast(array, out_dtype))
    if count(array.shape, dims) == 0:
        return xp.log(xp.sum(array, axis=dims, keepdims=keepdim))
    peak = xp.max(array.real, axis=dims, keepdims=True)
    peak = xp.where(xp.isfinite(peak), peak, peak.dtype.type(0))  # inf - inf is NaN; unshifted, exp(inf) is inf and exp(-inf) is 0
    total = xp.log(xp.sum(xp.exp(array - peak), axis=dims, keepdims=True, dtype=widest(out_dtype))) + peak
    return total if keepdim else xp.squeeze(total, axis=dims)


def _of_numpys(name: str) -> Callable:
    return lambda xp, array, dims, keepdim, out_dtype: getattr(xp, name)(unhalved(array), axis=dims, keepdims=keepdim)


FOLDS: dict[str, Callable] = {
    "sum": _sum,
    "nansum": _nansum,
    "mean": _mean,
    "prod": _prod,
    "logsumexp": _logsumexp,
    "count_nonzero": lambda xp, array, dims, keepdim, out_dtype: xp.sum(array != 0, axis=dims, keepdims=keepdim, dtype=np.int64),
    **{name: _of_numpys(name) for name in ("any", "all", "max", "min")},
}
