"""x[...]: the operations behind reading and writing by index.

What stood between the brackets is read by `kernels/indexing/index_plan.py`: first a view, then, where the index holds tensors, a gather from
that view. The view is declared here four times under the names PyTorch gives it, by the last thing the index did; `_index` is the
gather and `_index_put` the write. `eager/indexing.py` puts them together.
"""

from __future__ import annotations

import numpy as np

from flambeau import errors
from flambeau.kernels import arrays, layout
from flambeau.kernels.indexing import gather
from flambeau.kernels.indexing.index_plan import INTEGERS, KEEP, MASK, Plan, basic_view, group_position, result_shape, result_strides
from flambeau.ops.asking import array_of
from flambeau.ops.declare import ViewOp, choice, composite, on_arrays, view
from flambeau.ops.masking import _masked_fill, filling
from flambeau.ops.views import placed


def _index_view(kind: str) -> ViewOp:
    """Declare the view x[index] whose last item was a number ("select"), a slice, None ("unsqueeze") or nothing that counts ("alias")."""

    @view(name=f"_window_{kind}", grad_name=f"{kind.capitalize()}Backward0")
    def window(input, index, place):
        """A window of the input: `place` is what it would be (shape, strides, offset) if the input were contiguous; None to ask `index`."""
        raise NotImplementedError("eager/indexing.py makes these views")

    window.derivative(_window_gradient)
    return window


def _window_gradient(grad, input_shape, index, place):
    return placed(grad, input_shape, place or basic_view(index, input_shape, layout.contiguous_strides(input_shape), 0))


VIEWS = {kind: _index_view(kind) for kind in ("select", "slice", "unsqueeze", "alias")}


# -- reading by index tensors ------------------------------------------------------------------------------------------


@on_arrays
def _index(input, indices):
    """input[indices]: an integer array or a mask per dimension (a mask of n dimensions for n of them), None where a dimension is kept."""
    if input.size:
        found = gather.read_simply(input, indices)
        if found is not None:
            return found
    plan = _as_plan(input, indices)
    shape = result_shape(plan, _count)
    dense = plan.strides == layout.contiguous_strides(plan.shape)
    strides = layout.contiguous_strides(shape) if dense else result_strides(plan, _count)
    if 0 in shape:  # where nothing is read, no index is out of bounds
        return arrays.empty_strided(shape, strides, input.dtype, arrays.device_of(input))
    found = gather.read(input, indices)
    if arrays.element_strides(found) == strides:
        return found
    out = arrays.empty_strided(shape, strides, input.dtype, arrays.device_of(input))
    arrays.write(out, found)
    return out


@_index.work
def _(input, indices):
    first = indices[0]
    simple = len(indices) == 1 and first is not None and first.dtype.kind == "i" and 0 < first.size <= gather.SMALL
    if not simple or not input.size or not input.ndim or not input.flags.c_contiguous or not first.flags.c_contiguous:
        return None
    return lambda input, indices: gather.pick_rows(input, indices[0])


_index.derivative(input=lambda grad, input_shape, indices: _index_put.call_inplace(grad.new_zeros(input_shape), indices, grad, True))


@_index.meta
def _(input, indices):
    plan = _as_plan(input, indices)
    if MASK in plan.kinds:
        raise NotImplementedError("x[mask] has as many elements as the mask has true ones, and a tensor on the meta device has no elements")
    shape = result_shape(plan)
    dense = plan.strides == layout.contiguous_strides(plan.shape)
    return shape, input.dtype, layout.contiguous_strides(shape) if dense else result_strides(plan)


def _as_plan(input, indices) -> Plan:
    """The gather as a plan, from which its shape and strides follow."""
    kinds = "".join(KEEP if i is None else MASK if i.dtype.kind == "b" else INTEGERS for i in indices)
    shapes = tuple(() if i is None else tuple(i.shape) for i in indices)
    return Plan(*arrays.view_of(input), 0, tuple(indices), kinds, shapes, group_position(kinds))


def _count(mask) -> int:
    return int(arrays.module_of(mask).count_nonzero(mask))


# -- writing by index tensors ------------------------------------------------------------------------------------------


@on_arrays(onto=arrays.copy, overlap="apart repeats warned")
def _index_put(input, indices, values, accumulate):
    """input[indices] = values, or += values."""
    if type(input) is np.ndarray and gather.write_simply(input, indices, arrays.apart(input, values), accumulate):
        return
    rows = len(indices) == 1 and indices[0].dtype.kind == "i" and input.size and not (accumulate and type(input) is not np.ndarray)
    plan = None if rows else _as_plan(input, indices)
    shape = (*indices[0].shape, *input.shape[1:]) if plan is None else result_shape(plan, _count)
    if values.shape != shape:
        _check_fit(values.shape, shape)
    values = arrays.apart(input, values)
    if rows:
        (gather.increase_rows if accumulate else gather.replace_rows)(input, indices[0], values)
    elif 0 not in shape:
        gather.write(input, indices, values, accumulate)


def _check_fit(values: tuple, shape: tuple) -> None:
    """RuntimeError unless values of one shape can be written to places of another."""
    if len(values) > len(shape) or any(n not in (1, m) for n, m in zip(reversed(values), reversed(shape), strict=False)):
        words = f"value tensor of shape {list(values)} cannot be broadcast to indexing result of shape {list(shape)}"
        raise RuntimeError(f"shape mismatch: {words}")


_index_put.derivative(
    # of what was not overwritten: zero where something was
    input=lambda grad, indices, accumulate: grad if accumulate else _index_put(grad, indices, grad.new_zeros(()), False),
    values=lambda grad, indices, values_shape: _index(grad, indices).sum_to_size(values_shape),
)


@choice(inplace=True, autocast="cuda widest")
def index_put(input, indices, values, accumulate=False):
    """`input` with `values` at the places that a tuple of index tensors names, or added to what is there.

    >>> torch.zeros(3).index_put((torch.tensor([0, 0, 2]),), torch.tensor([1.0, 2.0, 4.0]), accumulate=True)
    tensor([3., 0., 4.])
    """
    indices = _checked(input, indices)
    if not hasattr(values, "_array"):
        raise TypeError(f"index_put(): argument 'values' (position 3) must be Tensor, not {type(values).__name__}")
    mask = lone_mask(indices)
    if mask is not None and values.numel() == 1 and not accumulate:
        spread = mask.reshape(tuple(mask.shape) + (1,) * (input.dim() - mask.dim()))
        return _masked_fill, input, spread, filling(input, values.reshape(()))
    check_dtypes(input, values, indices)
    return _index_put, input, indices, values, bool(accumulate)


def _checked(input, indices) -> list:
    """The indices as a list of tensors; TypeError, IndexError or RuntimeError for what cannot be one."""
    if not isinstance(indices, (tuple, list)):
        raise TypeError(f"index_put(): argument 'indices' (position 2) must be tuple of Tensors, not {type(indices).__name__}")
    for i, index in enumerate(indices):
        if not hasattr(index, "_array"):
            raise TypeError(f"expected Tensor as element {i} in argument 1, but got {type(index).__name__}")
        if index.dtype.name == "uint8":
            errors.warn("indexing with a uint8 mask is deprecated: say mask.bool(), or .long() if these are positions")
    found = [as_index(index) for index in indices]
    if not found:
        raise RuntimeError("index_put() takes at least one index tensor: to write everywhere, use copy_")
    named = sum(index.dim() if index.dtype.name == "bool" else 1 for index in found)
    if named > input.dim():
        raise IndexError(f"too many indices for tensor of dimension {input.dim()}, found {named}")
    return found


def as_index(index):
    """A tensor that may index: int32, int64 or bool as it is, uint8 as the mask it once was."""
    name = index.dtype.name
    if name == "uint8":
        return index.bool()
    if name not in ("int64", "int32", "bool"):
        raise IndexError(f"a tensor as an index must be long, int, byte or bool, found {index.dtype}. Try .long()")
    return index


def lone_mask(indices: list):
    """The one mask that starts at the first dimension and is all there is; None otherwise."""
    if len(indices) == 1 and indices[0] is not None and indices[0].dtype.name == "bool" and indices[0].dim():
        return indices[0]
    return None


def check_dtypes(input, values, indices: list) -> None:
    """RuntimeError unless the values have the dtype of what they are written into. That they do not fit there is told first."""
    if values.dtype is not input.dtype:
        if input.device.type != "meta":
            _check_fit(values.shape, result_shape(_as_plan(array_of(input), [*map(array_of, indices)]), _count))
        raise RuntimeError(f"Index put requires the source and destination dtypes match, found {values.dtype} for {input.dtype}")


@composite(public=True)
def _index_put_impl_(input, indices, values, accumulate=False, unsafe=False):
    """`index_put` in place, under the name PyTorch's own programs call it by."""
    return input.index_put_(indices, values, accumulate)
