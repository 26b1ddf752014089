"""Sorting: sort, argsort, msort, topk. NaN counts as the greatest value; equal elements keep their order.

Gradients go to the elements that were chosen, wherever sorting took them.
"""

from __future__ import annotations

from flambeau import dtypes
from flambeau.kernels import layout
from flambeau.kernels.templates import sorting
from flambeau.ops import specs
from flambeau.ops.declare import composite, on_arrays
from flambeau.ops.extrema import scattered
from flambeau.ops.results import named_result
from flambeau.ops.views import whole


@on_arrays(returns=named_result("sort", "values indices"))
def _sort(input, dim, descending):
    """Values in order along `dim`, and the indices they came from."""
    if input.dtype.kind == "c":
        raise RuntimeError(
            "Sort: Sort does not support complex dtypes on CPU or elsewhere: they have no order. Sort x.abs() or x.real instead"
        )
    rows, dim = row_form(input, dim)
    values, indices = sorting.sort(rows, dim, bool(descending))
    return values.reshape(input.shape), indices.reshape(input.shape)


@_sort.work
def _(input, dim, descending):
    at = layout.wrap_dim(dim, input.ndim)
    return sorting.ready("sort", input, input.shape[at], at, bool(descending)) if input.ndim else None


_sort.derivative(input=lambda grad, indices, dim, input_shape: scattered(grad, indices, dim, input_shape))


@_sort.meta
def _(input, dim, descending):
    layout.wrap_dim(dim, input.ndim)
    shape, dtype, strides = specs.like(input)
    return [(shape, dtype, strides), (shape, dtypes.int64.numpy, strides)]


@composite(out="same whole")
def sort(input, dim=-1, descending=False, *, stable=False):
    """(values, indices) in order along `dim`. The sort is stable whether or not that was asked for."""
    return _sort(input, whole(dim), descending)


@composite
def argsort(input, dim=-1, descending=False, *, stable=False):
    """The indices that sort `input` along `dim`."""
    return _sort(input, whole(dim), descending).indices


@composite(out="same")
def msort(input):
    """The values in order along the first dimension."""
    return _sort(input, 0, False).values


@on_arrays(returns="values indices", out="same whole")
def topk(input, k, dim=-1, largest=True, sorted=True):
    """(values, indices) of the `k` largest (or smallest) elements along `dim`, in order whether or not that was asked for.

    (*, N, *) -> (*, k, *)
    """
    if input.dtype.kind in "bc":
        raise RuntimeError(f"topk does not support {'bool' if input.dtype.kind == 'b' else 'complex'} dtypes. Try x.int() or x.abs()")
    k = whole(k)
    rows, dim = row_form(input, dim)
    if not 0 <= k <= rows.shape[dim]:
        raise RuntimeError(f"selected index k out of range: topk of {rows.shape[dim]} elements along dimension {dim} found k={k}")
    values, indices = sorting.topk(rows, k, dim, bool(largest))
    return (values, indices) if input.ndim else (values.reshape(()), indices.reshape(()))


topk.work(lambda input, k, dim, largest, sorted: sorting.ready("topk", input, k, layout.wrap_dim(dim, input.ndim), bool(largest)))
topk.derivative(input=lambda grad, indices, dim, input_shape: scattered(grad, indices, dim, input_shape))


@topk.meta
def _(input, k, dim=-1, largest=True, sorted=True):
    dim = layout.wrap_dim(dim, input.ndim)
    shape = tuple(k if d == dim else n for d, n in enumerate(input.shape))
    return [(shape, input.dtype), (shape, dtypes.int64.numpy)]


def row_form(array, dim) -> tuple:
    """(array, dim) where a 0-d array has become a row of one, so that there is a dimension to work along."""
    dim = layout.wrap_dim(whole(dim), array.ndim)
    return (array, dim) if array.ndim else (array.reshape(1), 0)
