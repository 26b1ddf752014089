"""Functions of whole rows: each element of the result depends on all elements along one dimension.

    softmax      exp(x) / sum(exp(x))        log_softmax   x - log(sum(exp(x)))

Each has a backward form that takes the gradient and the result. Half precision is computed in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flambeau.kernels import arrays, folding
from flambeau.kernels.arrays import Array
from flambeau.kernels.reduce import dense, unhalved, widest


def softmax(array: Array, dim: int) -> Array:
    """exp(x) / sum(exp(x)) along `dim`. Same shape, C-contiguous."""
    return _rows(_softmax, dim, array)


def softmax_backward(grad: Array, result: Array, dim: int) -> Array:
    """result * (grad - sum(grad * result)) along `dim`."""
    return _rows(_softmax_backward, dim, grad, result)


def log_softmax(array: Array, dim: int) -> Array:
    """x - log(sum(exp(x))) along `dim`."""
    return _rows(_log_softmax, dim, array)


def log_softmax_backward(grad: Array, result: Array, dim: int) -> Array:
    """grad - exp(result) * sum(grad) along `dim`."""
    return _rows(_log_softmax_backward, dim, grad, result)


def _rows(function: Callable, dim: int, *operands: Array) -> Array:
    first = operands[0]
    compiled = folding.rows(function.__name__[1:], dim, operands)
    if compiled is not None:
        return compiled
    xp = arrays.module_of(first)
    if first.size == 0:
        return arrays.empty(first.shape, first.dtype, arrays.device_of(first))
    rows = [unhalved(a).reshape(a.shape or (1,)) for a in operands]  # a 0-d tensor is a row of one
    with np.errstate(all="ignore"):
        found = function(xp, dim, *rows)
    return dense(found.reshape(first.shape), first.dtype, first)


def _total(xp, array, dim):
    """The sum of a row, carried in double precision, as the dtype of the row again."""
    return xp.sum(array, axis=dim, keepdims=True, dtype=widest(array.dtype)).astype(array.dtype)


def _softmax(xp, dim, x):
    powers = xp.exp(x - xp.max(x, axis=dim, keepdims=True))  # shifted, so that exp cannot overflow
    return powers / _total(xp, powers, dim)


def _softmax_backward(xp, dim, grad, result):
    return result * (grad - _total(xp, grad * result, dim))


def _log_softmax(xp, dim, x):
    shifted = x - xp.max(x, axis=dim, keepdims=True)
    return shifted - xp.log(_total(xp, xp.exp(shifted), dim))


def _log_softmax_backward(xp, dim, grad, result):
    return grad - xp.exp(result) * _total(xp, grad, dim)
