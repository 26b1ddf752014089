"""Masks: a true or false for every element. masked_fill writes a number there, masked_select reads, masked_scatter writes a sequence."""

from __future__ import annotations

from math import prod

import numpy as np

from flambeau import literals
from flambeau.kernels import arrays, layout
from flambeau.kernels.indexing import gather
from flambeau.kernels.language import expr as e
from flambeau.ops import specs
from flambeau.ops.asking import is_batched
from flambeau.ops.declare import choice, composite, on_arrays, pointwise
from flambeau.ops.scattering import check_tensor
from flambeau.ops.views import placed


@pointwise(kinds=("T", "bool", "T"), overlap="repeats warned")
def _masked_fill(input, mask, value):
    """value where the mask is true, else input."""
    return e.where(mask, value, input)


@choice(inplace=True, row_major=True)
def masked_fill(input, mask, value):
    """`input` with a number (or 0-d tensor) wherever the mask is true; the mask broadcasts.

    >>> torch.tensor([1.0, 2.0]).masked_fill(torch.tensor([True, False]), -torch.inf)
    tensor([-inf, 2.])
    """
    _check_mask("masked_fill_", mask)
    if hasattr(value, "_array"):
        if value.dim():
            raise RuntimeError(f"masked_fill_ only supports a 0-dimensional value tensor, but got tensor with {value.dim()} dimension(s).")
    elif not isinstance(value, (*arrays.NUMBERS, np.generic)):
        raise TypeError(f"masked_fill(): argument 'value' must be Number or 0-d Tensor, not {type(value).__name__}")
    if mask.numel() > input.numel():
        mask = mask.contiguous()  # else its order of dimensions would be that of the result
    return _masked_fill, input, mask, filling(input, value)


def filling(input, value):
    """A number or 0-d tensor as what is written into `input`: in its dtype; RuntimeError if it does not fit."""
    if hasattr(value, "_array"):
        if value.requires_grad or value.is_meta or is_batched(value):
            return value.to(device=input.device, dtype=input.dtype)
        value = value.item()
    number = literals.stored(value, input.dtype)
    return number if isinstance(number, arrays.NUMBERS) else number.item()


def _check_mask(name: str, mask) -> None:
    check_tensor(name, "mask", mask)
    if mask.dtype.name != "bool":
        raise RuntimeError(f"{name} only supports boolean masks, found {mask.dtype}. Try mask.bool()")


@on_arrays(meta=specs.of_data)
def _masked_select(input, mask):
    """The elements of `input` where a mask of the same shape is true, in order. 1-d."""
    return gather.read(input.reshape(1), [mask.reshape(1)]) if not input.ndim else gather.read(input, [mask])


_masked_select.derivative(input=lambda grad, input_shape, mask: _masked_scatter.call_inplace(grad.new_zeros(input_shape), mask, grad))


@composite(out="apart")
def masked_select(input, mask):
    """The elements where the mask is true, as a 1-d copy; input and mask broadcast."""
    check_tensor("masked_select", "mask", mask)
    if mask.dtype.name != "bool":
        raise RuntimeError(f"masked_select: expected BoolTensor for mask, found {mask.dtype}. Try mask.bool()")
    if input.shape == mask.shape:
        return _masked_select(input, mask)
    shape = layout.broadcast_shapes(tuple(input.shape), tuple(mask.shape))
    return _masked_select(input.expand(shape), mask.expand(shape))


@on_arrays(onto=arrays.contiguous_copy)
def _masked_scatter(input, mask, source):
    """The elements of source, one after the other, written to input where the mask is true."""
    xp = arrays.module_of(input)
    mask = xp.broadcast_to(mask, input.shape)
    count = int(xp.count_nonzero(mask))
    if source.size < count:
        raise RuntimeError(f"masked_scatter: elements of source < number of ones in mask, {source.size} < {count}")
    line, chosen = (input, mask) if input.ndim else (input.reshape(1), mask.reshape(1))
    gather.write(line, [chosen], arrays.apart(input, source).reshape(-1)[:count])


_masked_scatter.derivative(
    input=lambda grad, mask: grad.masked_fill(mask, 0),
    source=lambda grad, mask, source_shape: _source_gradient(grad, mask, source_shape),
)


def _source_gradient(grad, mask, shape):
    """The gradients of the elements that were used, followed by zeros for those that were not."""
    used = grad.masked_select(mask)
    size = prod(shape)
    if used.numel() < size:
        used = placed(used, (size,), ((used.numel(),), (1,), 0))
    return used.reshape(shape)


@composite
def masked_scatter(input, mask, source):
    """`input` with the elements of source, in order, wherever the mask is true; input and mask broadcast."""
    _check_masked_scatter(input, mask, source)
    shape = layout.broadcast_shapes(tuple(input.shape), tuple(mask.shape))
    return _masked_scatter(input.expand(shape), mask.expand(shape), source)


@composite(public=False)
def masked_scatter_(input, mask, source):
    """`masked_scatter` in place."""
    _check_masked_scatter(input, mask, source)
    return _masked_scatter.call_inplace(input, mask.expand(tuple(input.shape)), source)


def _check_masked_scatter(input, mask, source) -> None:
    _check_mask("masked_scatter_", mask)
    check_tensor("masked_scatter", "source", source)
    if input.dtype is not source.dtype:
        raise RuntimeError(f"masked_scatter: source must be of the dtype of self, {input.dtype}, found {source.dtype}")
