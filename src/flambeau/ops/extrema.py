"""Extrema: the largest and the smallest, their values and where they are. A NaN among the elements is the answer.

Where several elements are equally large, `amax`, `aminmax` and `max` over all share the gradient among them evenly; `max` along a
dimension gives it to the one whose index it returns.
"""

from __future__ import annotations

from flambeau import dtypes
from flambeau.kernels.reduce import extremum, reduce
from flambeau.ops.declare import OPS, composite, on_arrays
from flambeau.ops.reductions import dims_of, reduced_shape, unreduced
from flambeau.ops.results import named_result
from flambeau.ops.views import whole

ALL = object()  # stands for an argument that was not given, where None would be an error
INT64 = dtypes.int64.numpy


# -- amax, amin, aminmax: values over several dimensions ---------------------------------------------------------------------


@on_arrays(public=False, method=False)
def _amax(input, dims, keepdim):
    """The maximum over `dims`."""
    return reduce("max", input, dims, keepdim, input.dtype)


@on_arrays(public=False, method=False)
def _amin(input, dims, keepdim):
    """The minimum over `dims`."""
    return reduce("min", input, dims, keepdim, input.dtype)


for _op in (_amax, _amin):
    _op.derivative(input=lambda grad, input, result, dims, keepdim: _shared(grad, input, result, dims, keepdim))
    _op.meta(lambda input, dims, keepdim: (reduced_shape(input.shape, dims, keepdim), input.dtype))


def _shared(grad, input, result, dims, keepdim: bool):
    """The gradient of an extremum, divided evenly among the elements that equal it."""
    shape = tuple(input.shape)
    mask = input == unreduced(result, shape, dims, keepdim)
    return mask * (unreduced(grad, shape, dims, keepdim) / mask.sum(dims, keepdim=True)) if shape else grad * mask


@composite(out="same")
def amax(input, dim=(), keepdim=False):
    """The maximum of all elements, or over dimensions. Equal elements share the gradient evenly."""
    return _amax(input, _checked_dims("amax", input, dim), keepdim)


@composite(out="same")
def amin(input, dim=(), keepdim=False):
    """The minimum of all elements, or over dimensions. Equal elements share the gradient evenly."""
    return _amin(input, _checked_dims("amin", input, dim), keepdim)


@on_arrays(public=False, method=False, returns=named_result("aminmax", "min max"))
def _aminmax(input, dims, keepdim):
    """Smallest and largest over `dims`."""
    return reduce("min", input, dims, keepdim, input.dtype), reduce("max", input, dims, keepdim, input.dtype)


@_aminmax.joint
def _(grads, input, min, max, dims, keepdim):
    shares = [_shared(g, input, r, dims, keepdim) for g, r in zip(grads, (min, max), strict=True) if g is not None]
    return {"input": shares[0] + shares[1] if len(shares) == 2 else shares[0]}


@_aminmax.meta
def _(input, dims, keepdim):
    return [(reduced_shape(input.shape, dims, keepdim), input.dtype)] * 2


@composite(out="same")
def aminmax(input, *, dim=None, keepdim=False):
    """(min, max) of all elements, or along one dimension, in one call."""
    return _aminmax(input, _checked_dims("aminmax", input, None if dim is None else whole(dim)), keepdim)


# -- max, min: value and place along a dimension, value of all, the larger of two --------------------------------------------


@on_arrays(public=False, method=False, returns=named_result("max", "values indices"), grad_name="MaxBackward0")
def _max_dim(input, dim, keepdim):
    """The maximum along a dimension and its index."""
    return _with_place("max", input, dim, keepdim)


@on_arrays(public=False, method=False, returns=named_result("min", "values indices"), grad_name="MinBackward0")
def _min_dim(input, dim, keepdim):
    """The minimum along a dimension and its index."""
    return _with_place("min", input, dim, keepdim)


def _with_place(kind: str, input, dim, keepdim):
    dims = dims_of(dim, input.ndim)
    check_not_empty(kind, input, dims, named=True)
    return extremum(kind, input, dims, keepdim)


for _op in (_max_dim, _min_dim):
    _op.derivative(input=lambda grad, indices, dim, input_shape, keepdim: scattered(grad, indices, dim, input_shape, keepdim))

    @_op.meta
    def _(input, dim, keepdim):
        shape = reduced_shape(input.shape, dims_of(dim, input.ndim), keepdim)
        return [(shape, input.dtype), (shape, INT64)]


def scattered(grad, indices, dim: int, shape, keepdim: bool = True):
    """Zeros of `shape` with `grad` at `indices` along `dim`: how a gradient reaches the elements that were chosen."""
    if not shape:
        return grad
    if not keepdim:
        grad, indices = grad.unsqueeze(dim), indices.unsqueeze(dim)
    return grad.new_zeros(shape).scatter_(dim, indices, grad)


@on_arrays(public=False, method=False, grad_name="MaxBackward1")
def _max_all(input):
    """The maximum of all elements."""
    check_not_empty("max", input, (), named=False)
    return reduce("max", input, tuple(range(input.ndim)), False, input.dtype)


@on_arrays(public=False, method=False, grad_name="MinBackward1")
def _min_all(input):
    """The minimum of all elements."""
    check_not_empty("min", input, (), named=False)
    return reduce("min", input, tuple(range(input.ndim)), False, input.dtype)


for _op in (_max_all, _min_all):
    _op.derivative(input=lambda grad, input, result: evenly(grad, input, result))
    _op.meta(lambda input: ((), input.dtype))


def evenly(grad, input, result):
    """The gradient of one element of the whole tensor, divided among all that equal it (all NaNs, if it is one)."""
    mask = input.isnan() if result.isnan().item() else input == result
    return mask * (grad / mask.sum())


@composite(out=True, name="max")
def max_(input, dim=ALL, keepdim=ALL, *, other=None):
    """max(input): the maximum of all elements. max(input, dim): (values, indices) along a dimension. max(input, other): of each pair."""
    return _three_forms("max", _max_all, _max_dim, input, dim, keepdim, other)


@composite(out=True, name="min")
def min_(input, dim=ALL, keepdim=ALL, *, other=None):
    """min(input): the minimum of all elements. min(input, dim): (values, indices) along a dimension. min(input, other): of each pair."""
    return _three_forms("min", _min_all, _min_dim, input, dim, keepdim, other)


def _three_forms(name: str, of_all, along, input, dim, keepdim, other):
    other = dim if hasattr(dim, "_array") else other
    if other is not None:
        return OPS[f"{name}imum"](input, other)
    if dim is not ALL:
        check_ordered(name, input._array, RuntimeError)
        return along(input, whole(dim), keepdim is not ALL and keepdim)
    if keepdim is not ALL:
        raise TypeError(f"{name}(): keepdim needs dim: use a{name}(keepdim=True) to keep all dimensions")
    check_ordered(name, input._array)
    return of_all(input)


# -- argmax, argmin: places --------------------------------------------------------------------------------------------------


@on_arrays(out="same")
def argmax(input, dim=None, keepdim=False):
    """Where the maximum is: its index along a dimension, or among all elements in order. The first, if there are several."""
    return _place("argmax", input, dim, keepdim)


@on_arrays(out="same")
def argmin(input, dim=None, keepdim=False):
    """Where the minimum is: its index along a dimension, or among all elements in order. The first, if there are several."""
    return _place("argmin", input, dim, keepdim)


def _place(name: str, input, dim, keepdim):
    if input.dtype.kind in "bc":
        kind, cure = ("bool", "x.int()") if input.dtype.kind == "b" else ("complex", "x.abs()")
        raise RuntimeError(f"{name}(): does not support {kind} input. Try {cure}")
    check_ordered(name, input)
    if dim is None and not input.size:
        raise IndexError(f"{name}(): Expected reduction dim to be specified for input.numel() == 0, found shape {tuple(input.shape)}")
    dims = dims_of(None if dim is None else whole(dim), input.ndim)
    check_not_empty(name, input, dims, named=dim is not None)
    return extremum(name[3:], input, dims, keepdim)[1]


for _op in (argmax, argmin):

    @_op.meta
    def _(input, dim=None, keepdim=False):
        return reduced_shape(input.shape, dims_of(dim, input.ndim), keepdim), INT64


# -- what has no extremum ----------------------------------------------------------------------------------------------------

WITHOUT_ORDER = ("complex64", "complex128", "uint16", "uint32", "uint64")  # the unsigned ones have one, but PyTorch has no kernels


def check_ordered(name: str, array, error: type[Exception] = NotImplementedError) -> None:
    """Complex numbers have no order."""
    found = dtypes.OF_NUMPY[array.dtype].name
    if found in WITHOUT_ORDER:
        what = "complex input" if found.startswith("complex") else found
        raise error(f'{name}(): does not support {what}: "{name}" not implemented for {found}')


def check_not_empty(name: str, array, dims, named: bool) -> None:
    """Nothing has no largest element. IndexError if the dimension was named, RuntimeError if all elements were meant."""
    if not named and not array.size:
        raise RuntimeError(
            f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' argument; "
            f"found shape {tuple(array.shape)}"
        )
    for d in dims if named else ():
        if array.shape[d] == 0:
            raise IndexError(f"{name}(): Expected reduction dim {d} to have non-zero size, found shape {tuple(array.shape)}")


def _checked_dims(name: str, input, dim) -> tuple[int, ...]:
    """The dimensions to go over, of a tensor that has an extremum over them."""
    array = input._array
    check_ordered(name, array)
    dims = dims_of(dim, array.ndim)
    check_not_empty(name, array, dims, named=dim is not None and dim != () and dim != [])
    return dims
