"""Extrema: the largest and the smallest, their values and where they are. A NaN among the elements is the answer.

Where several elements are equally large, `amax`, `aminmax` and `max` over all share the gradient among them evenly; `max` along a
dimension gives it to the one whose index it returns.
"""

from __future__ import annotations

from flambeau import dtypes
from flambeau.kernels.reductions import folding
from flambeau.kernels.reductions.reduce import extremum, reduce
from flambeau.ops.asking import anywhere
from flambeau.ops.declare import OPS, composite, on_arrays, one_of
from flambeau.ops.reductions import dims_of, reduced_shape, unreduced
from flambeau.ops.results import named_result
from flambeau.ops.views import whole

ALL = object()  # stands for an argument that was not given, where None would be an error
INT64 = dtypes.int64.numpy


# -- what the derivatives share ----------------------------------------------------------------------------------------------


def _shared(grad, input, result, dims, keepdim: bool):
    """The gradient of an extremum, divided evenly among the elements that equal it."""
    shape = tuple(input.shape)
    mask = input == unreduced(result, shape, dims, keepdim)
    return mask * (unreduced(grad, shape, dims, keepdim) / mask.sum(dims, keepdim=True)) if shape else grad * mask


def evenly(grad, input, result):
    """The gradient of one element of the whole tensor, divided among all that equal it (all NaNs, if it is one)."""
    nan = result.isnan()
    mask = (input == result) | (input.isnan() & nan) if anywhere(nan) else input == result
    return mask * (grad / mask.sum())


def scattered(grad, indices, dim: int, input_shape, keepdim: bool = True):
    """Zeros of `input_shape` with `grad` at `indices` along `dim`: how a gradient reaches the elements that were chosen."""
    if not input_shape:
        return grad
    if not keepdim:
        grad, indices = grad.unsqueeze(dim), indices.unsqueeze(dim)
    return grad.new_zeros(input_shape).scatter_(dim, indices, grad)


def picked_shapes(input, dim, keepdim, **_):
    """The shapes of (values, indices) of one element along `dim`."""
    shape = reduced_shape(input.shape, dims_of(dim, input.ndim), keepdim)
    return [(shape, input.dtype), (shape, INT64)]


# -- max and min -------------------------------------------------------------------------------------------------------------


def _declare(kind: str) -> None:
    """Declare amax, max and argmax, or amin, min and argmin, with their building blocks: over dimensions, along one, of all elements."""

    @on_arrays(name=f"_a{kind}")
    def over(input, dims, keepdim):
        return reduce(kind, input, dims, keepdim, input.dtype)

    @on_arrays(
        public=False, method=False, name=f"_{kind}_dim", returns=named_result(kind, "values indices"), grad_name=f"{kind.title()}Backward0"
    )
    def along(input, dim, keepdim):
        dims = dims_of(dim, input.ndim)
        check_not_empty(kind, input, dims, named=True)
        return extremum(kind, input, dims, keepdim)

    @on_arrays(name=f"_{kind}_all", grad_name=f"{kind.title()}Backward1")
    def of_all(input):
        check_not_empty(kind, input, (), named=False)
        return reduce(kind, input, tuple(range(input.ndim)), False, input.dtype)

    along.work(lambda input, dim, keepdim: folding.positions_ready(kind, input, dims_of(dim, input.ndim), keepdim))

    over.work(lambda input, dims, keepdim: folding.ready(kind, input, dims, keepdim, input.dtype) if input.size else None)
    over.derivative(input=_shared)
    over.meta(lambda input, dims, keepdim: (reduced_shape(input.shape, dims, keepdim), input.dtype))
    along.derivative(input=scattered)
    along.meta(picked_shapes)
    of_all.work(lambda input: folding.ready_whole(kind, input, input.dtype))
    of_all.derivative(input=evenly)
    of_all.meta(lambda input: ((), input.dtype))

    doc = f"The {kind}imum of all elements, or over dimensions. Equal elements share the gradient evenly."

    @composite(out="same", name=f"a{kind}", doc=doc)
    def value(input, dim=(), keepdim=False):
        return over(input, _checked_dims(f"a{kind}", input, dim), keepdim)

    doc = f"{kind}(input): the {kind}imum of all elements. {kind}(input, dim): (values, indices) along a dimension. {kind}(input, other): of each pair."

    @composite(out=True, name=kind, doc=doc)
    def three_forms(input, dim=ALL, keepdim=ALL, *, other=None):
        other = dim if hasattr(dim, "_array") else other
        if other is not None:
            return OPS[f"{kind}imum"](input, other)
        if dim is not ALL:
            check_ordered(kind, input, RuntimeError)
            return along(input, whole(dim), keepdim is not ALL and keepdim)
        if keepdim is not ALL:
            raise TypeError(f"{kind}(): keepdim needs dim: use a{kind}(keepdim=True) to keep all dimensions")
        check_ordered(kind, input)
        return of_all(input)

    name = f"arg{kind}"
    doc = f"Where the {kind}imum is: its index along a dimension, or among all elements in order. The first, if there are several."

    @on_arrays(out="same", name=name, doc=doc)
    def place(input, dim=None, keepdim=False):
        if input.dtype.kind in "bc":
            found, cure = ("bool", "x.int()") if input.dtype.kind == "b" else ("complex", "x.abs()")
            raise RuntimeError(f"{name}(): does not support {found} input. Try {cure}")
        check_ordered(name, input)
        if dim is None and not input.size:
            raise IndexError(f"{name}(): Expected reduction dim to be specified, as nothing is in shape {tuple(input.shape)}")
        dims = dims_of(None if dim is None else whole(dim), input.ndim)
        check_not_empty(name, input, dims, named=dim is not None)
        return extremum(kind, input, dims, keepdim)[1]

    @place.work
    def _(input, dim, keepdim):
        found = folding.positions_ready(kind, input, dims_of(dim, input.ndim), keepdim)
        return None if found is None else one_of(found, 1)

    place.meta(lambda input, dim=None, keepdim=False: (reduced_shape(input.shape, dims_of(dim, input.ndim), keepdim), INT64))


_declare("max")
_declare("min")


@on_arrays(returns=named_result("aminmax", "min max"))
def _aminmax(input, dims, keepdim):
    """Smallest and largest over `dims`."""
    return reduce("min", input, dims, keepdim, input.dtype), reduce("max", input, dims, keepdim, input.dtype)


@_aminmax.joint
def _(grads, input, min, max, dims, keepdim):
    shares = [_shared(g, input, r, dims, keepdim) for g, r in zip(grads, (min, max), strict=True) if g is not None]
    return {"input": shares[0] + shares[1] if len(shares) == 2 else shares[0]}


_aminmax.meta(lambda input, dims, keepdim: [(reduced_shape(input.shape, dims, keepdim), input.dtype)] * 2)


@composite(out="same")
def aminmax(input, *, dim=None, keepdim=False):
    """(min, max) of all elements, or along one dimension, in one call."""
    return _aminmax(input, _checked_dims("aminmax", input, None if dim is None else whole(dim)), keepdim)


# -- what has no extremum ----------------------------------------------------------------------------------------------------

WITHOUT_ORDER = ("complex64", "complex128", "uint16", "uint32", "uint64")  # the unsigned ones have one, but PyTorch has no kernels


def check_ordered(name: str, array, error: type[Exception] = NotImplementedError) -> None:
    """Complex numbers have no order."""
    found = dtypes.of_array(array).name
    if found in WITHOUT_ORDER:
        what = "complex input" if found.startswith("complex") else found
        raise error(f'{name}(): does not support {what}: "{name}" not implemented for {found}')


def check_not_empty(name: str, array, dims, named: bool) -> None:
    """Nothing has no largest element. IndexError if the dimension was named, RuntimeError if all elements were meant."""
    if not named and 0 in array.shape:
        raise RuntimeError(f"{name}(): Expected reduction dim to be specified, as nothing is in shape {tuple(array.shape)}")
    for d in dims if named else ():
        if array.shape[d] == 0:
            raise IndexError(f"{name}(): Expected reduction dim {d} to have non-zero size, found shape {tuple(array.shape)}")


def _checked_dims(name: str, input, dim) -> tuple[int, ...]:
    """The dimensions to go over, of a tensor that has an extremum over them."""
    check_ordered(name, input)
    dims = dims_of(dim, input.dim())
    check_not_empty(name, input, dims, named=dim is not None and dim != () and dim != [])
    return dims
