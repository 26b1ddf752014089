"""Which elements: nonzero and argwhere say where they are, take and put count through all of them in row-major order."""

from __future__ import annotations

import numpy as np

from flambeau import determinism, dtypes
from flambeau.kernels import arrays, layout
from flambeau.kernels.indexing import gather, index_errors
from flambeau.ops import specs
from flambeau.ops.declare import choice, composite, on_arrays
from flambeau.ops.scattering import check_index, check_tensor
from flambeau.ops.views import whole

INT64 = dtypes.int64.numpy


# -- where something is not zero ---------------------------------------------------------------------------------------------


@on_arrays(meta=specs.of_data)
def _nonzero(input):
    """The indices of all elements that are not zero, a row each. (*) of n dimensions -> (count, n)."""
    if not input.ndim:
        count = int(bool(input))
        return arrays.empty_strided((count, 0), (1, count), INT64, arrays.device_of(input))
    columns = gather.true_indices(input)  # PyTorch too writes one dimension after the other
    count = columns.shape[1]
    return arrays.strided_view(columns, (count, input.ndim), (1, count))


@composite(out="same")
def nonzero(input, *, as_tuple=False):
    """Where the elements are that are not zero: a row of indices for each, (count, n), in row-major order.

    `as_tuple=True` gives one 1-d tensor per dimension instead, which can be used as an index: x[x.nonzero(as_tuple=True)].
    """
    if not as_tuple:
        return _nonzero(input)
    return _nonzero(input if input.dim() else input.reshape(1)).unbind(1)


@composite
def argwhere(input):
    """Where the elements are that are not zero: a row of indices for each. (*) of n dimensions -> (count, n)."""
    return _nonzero(input)


@on_arrays
def _nonzero_static(input, size, fill_value):
    out = arrays.empty_beside(input, (size, input.ndim), INT64)
    out[...] = fill_value
    if input.ndim:
        found = gather.true_indices(input)[:, :size]
        out[: found.shape[1]] = found.T
    return out


_nonzero_static.meta(lambda input, size, fill_value: ((size, input.ndim), INT64))


@composite(out="same")
def nonzero_static(input, *, size, fill_value=-1):
    """`nonzero` with exactly `size` rows: what is beyond is left out, what is missing is filled up with `fill_value`."""
    if size < 0:
        raise RuntimeError(f"nonzero_static: 'size' must be an non-negative integer, found {size}")
    return _nonzero_static(input, whole(size), whole(fill_value))


# -- an index into all elements ------------------------------------------------------------------------------------------------


def _flat_index(index, size: int):
    """Indices into `size` elements, negative ones counted from the end."""
    return gather.wrapped(index, size, 0, index_errors.ELEMENT)


def _addresses(array, index):
    """Addresses of elements counted in row-major order."""
    shape, strides = arrays.view_of(array)
    if layout.is_contiguous(shape, strides):
        return index
    return sum(place * np.int64(stride) for place, stride in zip(gather.unravelled(index, shape), strides, strict=True))


@on_arrays
def _take(input, index):
    """out[i] = the element number index[i] of input."""
    if not input.size and index.size:
        raise IndexError("take(): there is nothing to take from an empty tensor")
    return gather.take_rows(gather.memory(input), 0, _addresses(input, _flat_index(index, input.size)))


_take.derivative(input=lambda grad, input_shape, index: _put.call_inplace(grad.new_zeros(input_shape), index, grad, True))
_take.meta(lambda input, index: (index.shape, input.dtype))


@_take.work
def _(input, index):
    small = 0 < index.size <= gather.MANY and input.size and input.flags.c_contiguous

    def run(input, index):
        try:
            return input.take(index)
        except IndexError:  # the long way says it in PyTorch's words
            return NotImplemented

    return run if small else None


@composite(out="apart")
def take(input, index):
    """Elements counted through the whole input in row-major order, in the shape of the index. Negative indices count from the end.

    >>> torch.take(torch.tensor([[4, 3, 5], [6, 7, 8]]), torch.tensor([0, 2, -1]))
    tensor([4, 5, 8])
    """
    check_index("take", index, ("int64",))
    return _take(input, index)


@on_arrays(onto=arrays.copy, overlap="apart")
def _put(input, index, source, accumulate):
    """source written to, or added at, the elements of input that the index counts off."""
    if not input.size and index.size:
        raise IndexError("put_(): an empty tensor has no places to put elements")
    at = _addresses(input, _flat_index(index, input.size))
    values = arrays.apart(input, source).reshape(at.shape)
    (gather.add_rows if accumulate else gather.put_rows)(gather.memory(input), 0, at, values)


_put.derivative(
    input=lambda grad, index, accumulate: grad if accumulate else _put(grad, index, grad.new_zeros(index.shape), False),
    source=lambda grad, index, source_shape: _take(grad, index).reshape(source_shape),
)


@choice(inplace=True)
def put(input, index, source, accumulate=False):
    """`input` with the elements of source written to the places that the index counts off in row-major order, or added there."""
    check_index("put_", index, ("int64",))
    check_tensor("put_", "source", source)
    if input.dtype is not source.dtype:
        raise RuntimeError(f"put_(): source must be of the same dtype as self, {input.dtype}, found {source.dtype}")
    if index.numel() != source.numel():
        raise IndexError(
            f"put_(): one number of source for each index, the same number of elements, is needed, found {source.numel()}, {index.numel()}"
        )
    if not accumulate:
        determinism.alert("put_")
    return _put, input, index, source, bool(accumulate)
