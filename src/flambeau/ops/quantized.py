"""Layers with 8-bit weights: the input is quantized as it comes, multiplied in integers, and the result is float32 again.

    linear        y = x Wᵀ + b, x quantized by the range of all its elements
    recurrence    the steps of a recurrent network: the input's part of all steps is one product, the state's part is one in each step

Weights are packed once (kernels/templates/quantized.py). `most` is the greatest integer of the input: 127 leaves a bit unused, as PyTorch does.
"""

from __future__ import annotations

from math import prod

from flambeau.kernels import arrays
from flambeau.kernels.native import native
from flambeau.kernels.templates import quantized
from flambeau.ops.declare import on_arrays
from flambeau.ops.recurrent import CELLS, _by_steps, _last, run, steps_of

LARGEST = 1 << 12  # elements of a state for which the loops have room on the stack


@on_arrays(name="_quantized_linear", public=False, method=False, differentiable=False)
def linear(input, packed, most):
    """input (*, K) float32 -> (*, N)."""
    if input.ndim == 2:
        return quantized.linear(input, packed, most)
    found = quantized.linear(input.reshape(prod(input.shape[:-1]), input.shape[-1]), packed, most)
    return found.reshape(*input.shape[:-1], packed.shape[0])


linear.meta(lambda input, packed, most: ((*input.shape[:-1], packed.shape[0]), input.dtype))


@on_arrays(name="_quantized_recurrence", public=False, method=False, differentiable=False, returns="out cell")
def _recurrence(gates, h0, c0, packed, sizes, reverse, cell, most):
    """(outputs (rows, H), the lstm's cell states) of one layer in one direction."""
    gates, h0, c0 = (x if x is None else arrays.contiguous(x) for x in (gates, h0, c0))
    if sizes[0] * packed.panels.size <= quantized.STEP:
        out, cells = quantized.steps(cell, gates, h0, c0, packed, sizes, reverse, most)
        return out, arrays.empty((0, 0), out.dtype) if cells is None else cells
    out = arrays.empty((gates.shape[0], h0.shape[1]), h0.dtype)
    cells = None if c0 is None else arrays.empty(out.shape, out.dtype)
    h, c = h0, c0
    for _, first, n, kept in steps_of(sizes, reverse):
        h, c = (x if x is None else _entering(x, start, kept, n) for x, start in ((h, h0), (c, c0)))
        here = slice(first, first + n)
        sums = quantized.product(*quantized.rows(h, most), packed, most)
        new_c = None if cells is None else cells[here]
        quantized.step(cell, out[here], gates[here], sums, h if c is None else c, new_c)
        h, c = out[here], new_c
    return out, arrays.empty((0, 0), out.dtype) if cells is None else cells


@_recurrence.meta
def _(gates, h0, c0, **_):
    out = (gates.shape[0], h0.shape[1]), h0.dtype
    return [out, ((0, 0), h0.dtype) if c0 is None else out]


def _entering(state, start, kept: int, n: int):
    """The state of n rows: those that go on, then those that start here."""
    if kept == n:
        return state[:n]
    return start[:n] if not kept else arrays.contiguous(arrays.module_of(state).concatenate([state[:kept], start[kept:n]]))


def _direction(cell: str, x, sizes, h0, c0, weights, biased: bool, reverse: bool):
    """(outputs, last h, last c) of one layer in one direction; weights: one object that multiplies inputs and states."""
    (params,) = weights
    gates = params.of_inputs(x)
    if params.most and native.lib is not None and gates.numel() and h0.shape[1] <= LARGEST:
        out, states = _recurrence(gates, h0, c0, params.packed_states, sizes, reverse, cell, params.most)
    else:
        out, states = _by_steps(cell, gates, None, None, h0, c0, sizes, reverse, product=lambda h, _, __: params.of_states(h))
    return out, _last(out, sizes, reverse), None if c0 is None else _last(states, sizes, reverse)


def network(cell: str, packed: bool, arguments: tuple) -> tuple:
    """As `lstm` and `gru` of ops/recurrent.py, with an object of packed weights for each layer and direction."""
    return run(cell, packed, arguments, _direction)


def step(cell: str, gates, sums, hx, cx=None) -> tuple:
    """(h', c') after one step, from the products of inputs and states."""
    return CELLS[cell](gates, sums, hx, cx)
