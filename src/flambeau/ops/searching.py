"""Searching: where values belong in a sorted sequence, and whether they are among others."""

from __future__ import annotations

from flambeau import dtypes
from flambeau.kernels import arrays
from flambeau.kernels.reductions.reduce import unhalved
from flambeau.kernels.templates import sorting
from flambeau.ops.asking import anywhere
from flambeau.ops.declare import composite, on_arrays

FEW = 1 << 12  # comparisons of every element with every other that take less time than sorting


@on_arrays(promote=("boundaries", "values"))
def _search(boundaries, values, right, out_int32):
    """Where each of `values` (..., V) goes into `boundaries` (..., B)."""
    if boundaries.dtype.kind in "bc":
        raise NotImplementedError(f'"searchsorted" not implemented for {boundaries.dtype.name}. Try x.int() or x.abs()')
    found = sorting.search(boundaries, values, right)
    return arrays.cast(arrays.module_of(values).asarray(found), dtypes.int32.numpy if out_int32 else dtypes.int64.numpy)


_search.meta(lambda boundaries, values, right, out_int32: (values.shape, "int32" if out_int32 else "int64"))


@composite(out="same", method=False)
def searchsorted(sorted_sequence, input, *, out_int32=False, right=False, side=None, sorter=None):
    """The index in `sorted_sequence` before which each value of `input` must go to keep it sorted.

    sorted_sequence  (B,), or (*, B) for one sequence per row of input (*, V); the result has input's shape
    right            whether equal elements stay in front of the value (side="right")
    sorter           the indices that sort sorted_sequence, if it is not sorted
    """
    if side not in (None, "left", "right"):
        raise RuntimeError(f"searchsorted(): its side can only be 'left' or 'right', found {side}")
    if side == "left" and right:
        raise RuntimeError("searchsorted(): side='left' contradicts right=True")
    values = _as_values(sorted_sequence, input)
    lead, shape = tuple(sorted_sequence.shape), tuple(values.shape)
    if not values.dim() and sorted_sequence.dim() != 1:
        raise RuntimeError("searchsorted(): a number is looked for only when boundaries tensor dimension is 1")
    if sorted_sequence.dim() != 1 and lead[:-1] != shape[:-1]:
        raise RuntimeError(f"torch.searchsorted(): the first N-1 dimensions of boundaries {list(lead)} and input {list(shape)} must match")
    if sorter is not None:
        sorted_sequence = _ordered(sorted_sequence, sorter)
    return _search(sorted_sequence, values, right or side == "right", out_int32)


def _as_values(boundaries, input):
    """The values to look for as a tensor: a number stands for a 0-d one."""
    return input if hasattr(input, "_array") else boundaries.new_tensor(input, dtype=dtypes.of_scalar(input))


def _ordered(sequence, sorter):
    if tuple(sorter.shape) != tuple(sequence.shape):
        raise RuntimeError(
            f"boundary and sorter must have the same size, found {list(sequence.shape)} and {list(sorter.shape)} (searchsorted)"
        )
    if sorter.dtype is not dtypes.int64:
        raise RuntimeError(f"sorter must be a tensor of long dtype, found {sorter.dtype.name} (searchsorted)")
    if sorter.numel() and anywhere((sorter < 0).logical_or(sorter >= sequence.shape[-1])):
        raise RuntimeError(f"torch.searchsorted(): sorter index out of range for {sequence.shape[-1]} elements")
    return sequence.gather(-1, sorter)


@composite(out="same", method=False)
def bucketize(input, boundaries, *, out_int32=False, right=False):
    """The index of the interval between `boundaries` (B,), sorted, that each value of `input` lies in: 0 below the first."""
    if boundaries.dim() != 1:
        raise RuntimeError(f"boundaries tensor must be 1 dimension, a row of numbers, found {boundaries.dim()}")
    return _search(boundaries, _as_values(boundaries, input), right, out_int32)


@on_arrays(promote=("elements", "test_elements"))
def _isin(elements, test_elements, invert):
    """Whether each of `elements` is one of `test_elements`."""
    xp = arrays.module_of(elements)
    if elements.dtype.kind in "bc":
        raise RuntimeError(f"Unsupported input type encountered for isin(): {elements.dtype.name}")
    if elements.size * test_elements.size <= FEW:
        found = (elements.reshape(-1, 1) == test_elements.reshape(-1)).any(1).reshape(elements.shape)
        return ~found if invert else found
    return xp.isin(unhalved(elements), unhalved(test_elements), invert=invert)


_isin.meta(lambda elements, **_: (elements.shape, "bool"))


@composite(out="same", method=False)
def isin(elements, test_elements, *, assume_unique=False, invert=False):
    """Whether each of `elements` is one of `test_elements`, as bool; the opposite, if `invert`. The shape of elements."""
    tensors = [x for x in (elements, test_elements) if hasattr(x, "_array")]
    if not tensors:
        raise TypeError("isin(): elements or test_elements must be a tensor, found two numbers")
    as_tensor = [x if hasattr(x, "_array") else tensors[0].new_tensor(x, dtype=dtypes.of_scalar(x)) for x in (elements, test_elements)]
    return _isin(*as_tensor, bool(invert))
