"""Filling: fill, zero_, fill_diagonal_. What is overwritten gets no gradient, the value that is written gets it all."""

from __future__ import annotations

import numpy as np

from flambeau import dtypes, literals
from flambeau.kernels import arrays
from flambeau.ops.declare import on_arrays


@on_arrays(onto=arrays.empty_like, inplace=True, overlap="repeats for numbers")
def fill(input, value):
    """A tensor like `input` with one number (or 0-d tensor) everywhere."""
    arrays.fill(input, _value(value, input))


@fill.work_in_place
def _(input, value):
    if hasattr(value, "shape"):
        return None
    return _filling(input, _value(value, input))


def _filling(out, number):
    """What writes a number to all of an array like this: a few by copying others, which takes a third of the time."""
    if out.flags.c_contiguous and 0 < out.nbytes <= 4096:
        same, copy = np.full(out.shape, number, out.dtype), arrays.CASTS[dtypes.of_array(out).name].launch_into
        if copy(np.empty_like(same), same) is not NotImplemented:
            return lambda out: copy(out, same)
    return lambda out: out.fill(number)


fill.derivative(input=lambda grad: grad.new_zeros(grad.shape), value=lambda grad: grad.sum())


def _value(value, out):
    """The number to store. Another dtype's number must fit; a 0-d tensor is converted as a cast would."""
    dtype = dtypes.of_array(out)
    if hasattr(value, "shape"):
        if len(value.shape):
            raise RuntimeError(f"fill_ only supports 0-dimension value tensor, found {len(value.shape)} dimensions")
        return arrays.cast(value, out.dtype).item()
    if not isinstance(value, arrays.NUMBERS):
        raise TypeError(f"fill_(): argument 'value' must be Number or 0-d Tensor, not {type(value).__name__}")
    return literals.stored(value, dtype)


@on_arrays(onto=arrays.empty_like, name="zero", public=False, method=False, inplace=True, overlap="repeats")
def _zero(input):
    """Zeros like `input`."""
    arrays.fill(input, 0)


_zero.work_in_place(lambda input: _filling(input, 0))
_zero.derivative(input=lambda grad: grad.new_zeros(grad.shape))


@on_arrays(onto=arrays.copy, name="fill_diagonal", public=False, method=False, inplace=True)
def _fill_diagonal(input, fill_value, wrap=False):
    """`input` with a number on its main diagonal; `wrap` starts it again after a blank row in tall matrices."""
    value = literals.stored(fill_value, dtypes.of_array(input))
    for diagonal in _diagonals(input, wrap):
        arrays.fill(diagonal, value)


@_fill_diagonal.meta
def _(input, fill_value, wrap=False):
    _diagonals(input, wrap)
    return input.shape, input.dtype


_fill_diagonal.derivative(input=lambda grad, wrap: grad.clone().fill_diagonal_(0, wrap))


def _diagonals(input, wrap: bool) -> list:
    """The main diagonal as a view, and in a tall matrix with `wrap` the further ones, each after a blank row."""
    shape, strides = arrays.view_of(input)
    if len(shape) < 2:
        raise RuntimeError(f"fill_diagonal_: dimensions must larger than 1, found shape {tuple(shape)}")
    if len(shape) > 2 and len(set(shape)) != 1:
        raise RuntimeError(f"fill_diagonal_: beyond 2, all dimensions must be alike, found {tuple(shape)}")
    step, n = sum(strides), min(shape)
    found = [arrays.strided_view(input, (n,), (step,))] if n else []
    if wrap and len(shape) == 2 and n and shape[0] > shape[1] + 1:
        for row in range(shape[1] + 1, shape[0], shape[1] + 1):
            found.append(arrays.strided_view(input, (min(n, shape[0] - row),), (step,), row * strides[0]))
    return found
