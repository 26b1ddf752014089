"""Reductions of segments: consecutive parts of a dimension, each of its own length, become one element each. segment_reduce.

Segments are given by their lengths, or by the offsets between them (one more than there are segments). Both may have batch dimensions,
which are the first of the data; the dimension that is cut comes next, and whatever follows is reduced side by side.
"""

from __future__ import annotations

import numpy as np

from flambeau import dtypes
from flambeau.kernels import arrays, layout
from flambeau.kernels.reductions.reduce import unhalved
from flambeau.ops import specs
from flambeau.ops.declare import OPS, composite, on_arrays
from flambeau.ops.views import whole

# How two elements become one, and what a segment without elements is
FOLDS = {
    "sum": (np.add, 0.0),
    "mean": (np.add, np.nan),
    "prod": (np.multiply, 1.0),
    "max": (np.maximum, -np.inf),
    "min": (np.minimum, np.inf),
}
NAME = "segment_reduce()"


@composite(method=False, aliases=("_segment_reduce",))  # by which torch_geometric knows it
def segment_reduce(data, reduce, *, lengths=None, indices=None, offsets=None, axis=0, unsafe=False, initial=None):
    """The sum, mean, prod, max or min of every segment along `axis`. (*, N, ...), lengths (*, S) or offsets (*, S + 1) -> (*, S, ...).

    `initial` is an element that every segment has besides its own, though it does not count in a mean; without it, a segment of none is 0, NaN, 1,
    -inf or inf. With `unsafe`, lengths need not fill all of N.

    >>> torch.segment_reduce(torch.tensor([1.0, 2, 3, 4]), "max", lengths=torch.tensor([3, 0, 1]), initial=0)
    tensor([3., 0., 4.])
    """
    if indices is not None:
        raise RuntimeError(f"{NAME}: indices based reduction is not supported yet. Try lengths= or offsets=")
    if lengths is None and offsets is None:
        raise RuntimeError(f"{NAME}: Either lengths or offsets must be defined.")
    given = offsets if lengths is None else lengths
    if reduce not in FOLDS:
        raise RuntimeError(f"{NAME}: reduce argument must be one of {', '.join(FOLDS)}, got {reduce}")
    if not data.is_floating_point():
        raise NotImplementedError(f'"{NAME}" is not implemented for {dtypes.in_messages(data.dtype)}. Try x.float()')
    if given.dtype not in (dtypes.int32, dtypes.int64):
        raise NotImplementedError(f'"{NAME}" is not implemented for lengths or offsets of {given.dtype}. Try .long()')
    axis = layout.wrap_dim(whole(axis), data.dim())
    if axis != given.dim() - 1:
        raise RuntimeError(f"{NAME}: Expected axis to be the last dimension of lengths, found {axis} for {tuple(given.shape)}.")
    batch = tuple(data.shape[:axis])
    if tuple(given.shape[:-1]) != batch:
        raise RuntimeError(f"{NAME}: lengths or offsets {tuple(given.shape)} should begin with the batch {batch} of {tuple(data.shape)}")
    if lengths is not None:
        offsets = OPS["cat"]([lengths.new_zeros((*batch, 1)), lengths], -1).cumsum(-1)
        if not unsafe and not offsets.is_meta and (offsets.narrow(-1, offsets.shape[-1] - 1, 1) != data.shape[axis]).any().item():
            _check_offsets(offsets, data.shape[axis])
            said = "Expected all rows of lengths along axis to sum to data.size(axis); unsafe=True does not look."
            raise RuntimeError(f"{NAME}: {said} Found {lengths.tolist()} for {data.shape[axis]}")
    _check_offsets(offsets, data.shape[axis])
    offsets = offsets.to(data.device) if data.is_meta else offsets
    return _segment_reduce(data, offsets.detach(), reduce, axis, None if initial is None else float(initial))


def _check_offsets(offsets, size: int) -> None:
    """RuntimeError unless segments lie one behind the other, inside of the dimension. (PyTorch reads what lies behind it.)"""
    if offsets.is_meta:
        return
    if offsets.shape[-1] == 0 or (offsets.diff() < 0).any().item():
        raise RuntimeError(f"{NAME}: lengths contains negative value! Or offsets that are none, or do not ascend: {offsets.tolist()}")
    if offsets.numel() and (offsets.amin().item() < 0 or offsets.amax().item() > size):
        raise RuntimeError(f"{NAME}: the segments end beyond the {size} elements of the dimension: {offsets.tolist()}")


@on_arrays(public=False, method=False, grad_name="SegmentReduceBackward0")
def _segment_reduce(data, offsets, reduce, axis, initial):
    """The reduction, in float32 for half precision."""
    lengths, where = _places(data, offsets, axis)
    ufunc, nothing = FOLDS[reduce]
    start = nothing if initial is None else initial
    found = _folded(ufunc, _flat(data, axis)[where], lengths, start)
    some = lengths > 0
    with np.errstate(all="ignore"):
        if initial is not None:
            found[some] = ufunc(found[some], found.dtype.type(initial))
        if reduce == "mean":
            found[some] /= lengths[some][:, None]
    return arrays.cast(found.reshape(*offsets.shape[:-1], offsets.shape[-1] - 1, *data.shape[axis + 1 :]), data.dtype)


@_segment_reduce.meta
def _(data, offsets, reduce, axis, initial):
    return (*data.shape[:axis], offsets.shape[-1] - 1, *data.shape[axis + 1 :]), data.dtype


_segment_reduce.derivative(
    data=lambda grad, data, result, offsets, reduce, axis, initial: _segment_gradient(grad, data, result, offsets, reduce, axis, initial)
)


@on_arrays(public=False, method=False)
def _segment_gradient(grad, data, result, offsets, reduce, axis, initial):
    """The gradient of the data. Elements that are equal extrema, or NaN, share it; of a product, each has the product of the others."""
    lengths, where = _places(data, offsets, axis)
    x, own = _flat(data, axis)[where], np.repeat(np.arange(lengths.size), lengths)
    back, value = (unhalved(a).reshape(lengths.size, -1) for a in (grad, result))
    found = back[own]
    with np.errstate(all="ignore"):
        if reduce == "mean":
            found = found / lengths[own][:, None]
        elif reduce in ("max", "min"):
            hit = (x == value[own]) | (np.isnan(x) & np.isnan(value[own]))
            shared = _folded(np.add, hit.astype(x.dtype), lengths, 0.0)
            found = np.where(hit, found / shared[own], 0)
        elif reduce == "prod":
            zero, nan = x == 0, np.isnan(x)  # nothing can be divided by these
            usual = np.where(zero | nan, 1, x)
            others = _folded(np.multiply, usual, lengths, 1.0)[own] / usual * (1.0 if initial is None else initial)
            zeros, nans = (_folded(np.add, special.astype(x.dtype), lengths, 0.0)[own] - special for special in (zero, nan))
            found = found * np.where(nans > 0, np.nan, np.where(zeros > 0, 0, others))
    out = np.zeros((_flat(data, axis).shape), data.dtype)
    out[where] = found
    return out.reshape(data.shape)


_segment_gradient.meta(lambda grad, data, **_: specs.contiguous(data))


def _flat(data, axis: int):
    """Rows (*N, R): the batch and the dimension that is cut as one, all that follows as the other."""
    wide, inner = unhalved(data), int(np.prod(data.shape[axis + 1 :]))
    return wide.reshape(int(np.prod(data.shape[: axis + 1])), inner)


def _places(data, offsets, axis: int):
    """(the length of every segment of the batch, the rows of `_flat` that lie in segments, in order)."""
    if type(data) is not np.ndarray:
        raise NotImplementedError(f"{NAME} is not available on CUDA: move the tensors to the CPU with .cpu() first")
    first = np.arange(int(np.prod(data.shape[:axis])))[:, None] * data.shape[axis]
    at = offsets.reshape(first.size, -1).astype(np.int64) + first
    starts, lengths = at[:, :-1].reshape(-1), np.diff(at).reshape(-1)
    before = np.cumsum(lengths) - lengths
    return lengths, np.arange(lengths.sum()) + np.repeat(starts - before, lengths)


def _folded(ufunc, x, lengths, nothing: float):
    """Rows (N, R) folded into one for each of consecutive segments, whose lengths add up to N. (S, R)."""
    out, some = np.full((lengths.size, x.shape[1]), nothing, x.dtype), lengths > 0
    if some.any():
        with np.errstate(all="ignore"):
            out[some] = ufunc.reduceat(x, (np.cumsum(lengths) - lengths)[some], axis=0)
    return out
