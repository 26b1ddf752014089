"""Reductions: one value for many.

A public function sorts out its arguments (which dimensions, which dtype) and calls one array operation, which asks `kernels.reduce`.
Dimensions are given as PyTorch takes them: an int, several in a tuple, none or an empty tuple for all.
"""

from __future__ import annotations

from functools import partial

from flambeau import dtypes
from flambeau.kernels import layout
from flambeau.kernels.reductions import folding
from flambeau.kernels.reductions.reduce import count, reduce
from flambeau.ops.asking import anywhere
from flambeau.ops.declare import composite, on_arrays
from flambeau.ops.views import _expand, whole

# -- declaring them ----------------------------------------------------------------------------------------------------------


def _over_dims(kind: str, dtype_of, **options):
    """Declare _<kind>(input, dims, keepdim, dtype); dtype_of(array, dtype) is NumPy's dtype of the result."""

    @on_arrays(name=f"_{kind}", **options)
    def reduced(input, dims, keepdim, dtype=None):
        return reduce(kind, input, dims, keepdim, dtype_of(input, dtype))

    @reduced.work
    def _(input, dims, keepdim, dtype):
        return folding.ready(kind, input, dims, keepdim, dtype_of(input, dtype)) if kind in folding.SIMPLE and input.size else None

    reduced.meta(lambda input, dims, keepdim, dtype=None: (reduced_shape(input.shape, dims, keepdim), dtype_of(input, dtype)))
    return reduced


def _over_all(kind: str, dtype_of, **options):
    """Declare _<kind>_all(input, dtype), the reduction of all elements: any shape -> ()."""

    @on_arrays(name=f"_{kind}_all", **options)
    def total(input, dtype):
        return reduce(kind, input, tuple(range(input.ndim)), False, dtype_of(input, dtype))

    total.work(lambda input, dtype: folding.ready_whole(kind, input, dtype_of(input, dtype)))
    total.meta(lambda input, dtype: ((), dtype_of(input, dtype)))
    return total


def summed_dtype(name: str, array, dtype):
    """NumPy's dtype of a sum or product: what was asked for, else int64 for integers and bools, else the array's own."""
    if dtype is None:
        return dtypes.int64.numpy if array.dtype.kind in "biu" else array.dtype
    return checked_dtype(name, dtype).numpy


def checked_dtype(name: str, dtype) -> dtypes.dtype:
    """The dtype= argument, if it is one."""
    found = dtypes.asked(dtype)
    if isinstance(found, dtypes.dtype):
        return found
    raise TypeError(f"{name}(): argument 'dtype' must be torch.dtype, found {type(dtype).__name__}")


# -- sums ------------------------------------------------------------------------------------------------------------------

_sum_all = _over_all("sum", partial(summed_dtype, "sum"), grad_name="SumBackward0")
_sum = _over_dims("sum", partial(summed_dtype, "sum"), grad_name="SumBackward1")
_sum_all.derivative(input=lambda grad, input_shape: _expand.call(grad, input_shape))
_sum.derivative(input=lambda grad, input_shape, dims, keepdim: spread(grad, input_shape, dims, keepdim))


@composite(out="decides", name="sum", autocast="cuda float32 unless dtype")
def sum_(input, dim=None, keepdim=False, *, dtype=None):
    """The sum of all elements, or over dimensions. Integers and bools are summed in int64; half precision in float32, rounded once."""
    if dtype is not None and isinstance(input.dtype, dtypes.float8):
        input = input.to(dtype)
    if dim is None and not keepdim:
        return _sum_all.call(input, dtype)
    return _sum.call(input, dims_of(dim, input.dim()), keepdim, dtype)


@composite(public=False)
def sum_to_size(input, *size):
    """`input` summed over the dimensions that broadcasting added or stretched, so that it has shape `size`."""
    size = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else tuple(size)
    if not size:
        return sum_(input)
    lead = input.dim() - len(size)
    shape = tuple(input.shape)
    if lead < 0 or any(n != 1 and n != shape[lead + i] for i, n in enumerate(size)):
        raise RuntimeError(f"size {list(size)} is not expandable to size {list(shape)}")
    stretched = [lead + i for i, n in enumerate(size) if n == 1 and shape[lead + i] != 1]
    if not lead and not stretched:
        return input
    summed = _sum(input, (*range(lead), *stretched), True)
    return summed.reshape(size) if lead else summed


_nansum = _over_dims("nansum", partial(summed_dtype, "nansum"))
_nansum.derivative(input=lambda grad, input, dims, keepdim: spread(grad, tuple(input.shape), dims, keepdim).masked_fill(input.isnan(), 0))


@composite(out="decides")
def nansum(input, dim=None, keepdim=False, *, dtype=None):
    """The sum of all elements that are not NaN, or over dimensions."""
    if input.is_complex():
        raise RuntimeError("nansum on CPU does not support complex inputs, nor elsewhere. Try torch.where(x != x, 0, x).sum()")
    if input.dtype.category < dtypes.FLOAT:
        return sum_(input, dim, keepdim, dtype=dtype)
    return _nansum(input, dims_of(dim, input.dim()), keepdim, dtype)


# -- means -----------------------------------------------------------------------------------------------------------------


def _mean_dtype(array, dtype):
    """NumPy's dtype of a mean; RuntimeError for integers, which have none."""
    found = dtypes.OF_NUMPY[array.dtype] if dtype is None else checked_dtype("mean", dtype)
    if found.category < dtypes.FLOAT:
        which = "Input dtype" if dtype is None else "Optional dtype"
        what = f"{which} must be floating point or complex, found {found.name}"
        raise RuntimeError(f"mean(): could not infer output dtype. {what}. Try x.float().mean(), or x.mean(dtype=torch.float32)")
    return found.numpy


_mean_all = _over_all("mean", _mean_dtype, grad_name="MeanBackward0")
_mean = _over_dims("mean", _mean_dtype, grad_name="MeanBackward1")
_mean_all.derivative(input=lambda grad, input_shape: (grad / count(input_shape, tuple(range(len(input_shape))))).expand(input_shape))
_mean.derivative(input=lambda grad, input_shape, dims, keepdim: spread(grad / count(input_shape, dims), input_shape, dims, keepdim))


@composite(out=True)
def mean(input, dim=None, keepdim=False, *, dtype=None):
    """The mean of all elements, or over dimensions. The mean of nothing is NaN."""
    if dim is None and not keepdim:
        return _mean_all(input, dtype)
    return _mean(input, dims_of(dim, input.dim()), keepdim, dtype)


@composite(out=True)
def nanmean(input, dim=None, keepdim=False, *, dtype=None):
    """The mean of all elements that are not NaN, or over dimensions."""
    if input.dtype.category < dtypes.FLOAT:
        raise RuntimeError(f"nanmean(): expected input to have floating point or complex dtype but got {input.dtype.name}. Try x.float()")
    total = nansum(input, dim, keepdim, dtype=dtype)
    return total / sum_(input.isnan().logical_not(), dim, keepdim)


# -- products --------------------------------------------------------------------------------------------------------------


_prod_all = _over_all("prod", partial(summed_dtype, "prod"), grad_name="ProdBackward0")
_prod = _over_dims("prod", partial(summed_dtype, "prod"), grad_name="ProdBackward1")
_prod_all.derivative(
    input=lambda grad, input, result: _prod_backward(grad, input.reshape(-1), result, (0,), False).reshape(tuple(input.shape))
)
_prod.derivative(input=lambda grad, input, result, dims, keepdim: _prod_backward(grad, input, result, dims, keepdim))


def _prod_backward(grad, input, result, dims, keepdim: bool):
    """Each element's derivative is the product of the others: the result over the element, unless there is a zero to divide by."""
    if not input.dim():
        return grad
    input = input.to(result.dtype)
    grad = unreduced(grad, tuple(input.shape), dims, keepdim)
    if anywhere(input == 0):
        return grad * conj(product_of_others(input, dims[0]))
    return grad * conj(unreduced(result, tuple(input.shape), dims, keepdim) / input)


def product_of_others(input, dim: int):
    """For each element the product of all others along `dim`: of those before it times those after it. Exact where some are zero."""
    from flambeau.ops import OPS

    cat = OPS["cat"]
    n = input.shape[dim]
    one = input.new_ones(reduced_shape(tuple(input.shape), (dim,), True))
    before = cat([one, input.narrow(dim, 0, n - 1)], dim).cumprod(dim)
    after = cat([one, input.narrow(dim, 1, n - 1).flip(dim)], dim).cumprod(dim).flip(dim)
    return before * after


@composite(out="decides", autocast="float32 unless dtype")
def prod(input, dim=None, keepdim=False, *, dtype=None):
    """The product of all elements, or over one dimension. Integers and bools are multiplied in int64."""
    if dim is None and not keepdim:
        return _prod_all(input, dtype)
    return _prod(input, dims_of(whole(dim), input.dim()), keepdim, dtype)


# -- truth -----------------------------------------------------------------------------------------------------------------


def _truth_dtype(input, dtype):
    """Truth is bool, except that bytes stay bytes: uint8 was PyTorch's bool once."""
    return input.dtype if input.dtype == dtypes.uint8.numpy else dtypes.bool.numpy


_all, _any = _over_dims("all", _truth_dtype), _over_dims("any", _truth_dtype)


def _truth_dims(input, dim):
    """As `dims_of`, but an empty tuple means no dimension at all here: each element by itself."""
    return () if isinstance(dim, (tuple, list)) and not dim else dims_of(dim, input.dim())


@composite(out="truth", name="all")
def all_(input, dim=None, keepdim=False):
    """Whether all elements are true (not zero), overall or over dimensions."""
    return _all(input, _truth_dims(input, dim), keepdim)


@composite(out="truth", name="any")
def any_(input, dim=None, keepdim=False):
    """Whether some element is true (not zero), overall or over dimensions."""
    return _any(input, _truth_dims(input, dim), keepdim)


_count_nonzero = _over_dims("count_nonzero", lambda input, dtype: dtypes.int64.numpy)


@composite
def count_nonzero(input, dim=None, *more):
    """The number of elements that are not zero, overall or over dimensions."""
    return _count_nonzero(input, dims_of((dim, *more) if more else dim, input.dim()), False)


# -- logsumexp -------------------------------------------------------------------------------------------------------------


def float_dtype(array, dtype=None):
    """NumPy's dtype of a function that has only floating values: integers become the default float."""
    return dtypes.get_default_dtype().numpy if array.dtype.kind in "biu" else array.dtype


_logsumexp = _over_dims("logsumexp", float_dtype)


def _logsumexp_backward(grad, input, result, dims, keepdim):
    grad, result = (unreduced(x, tuple(input.shape), dims, keepdim) for x in (grad, result))
    return grad * conj((input - result).exp())


_logsumexp.derivative(input=_logsumexp_backward)


@composite(out=True, aliases=("special.logsumexp",), autocast="cuda float32")
def logsumexp(input, dim, keepdim=False):
    """log(sum(exp(input))) over dimensions, without overflow: the largest element is taken out before exp and put back after log."""
    return _logsumexp(input, dims_of(dim, input.dim()), keepdim)


# -- dimensions and dtypes ---------------------------------------------------------------------------------------------------


def dims_of(dim, ndim: int) -> tuple[int, ...]:
    """The dimensions a reduction goes over, counted from the front. A 0-d tensor has none, but answers to 0 and -1."""
    if dim is None:
        return tuple(range(ndim))
    if type(dim) is int and -ndim <= dim < ndim:
        return (dim % ndim,)
    named = [whole(d) for d in dim] if isinstance(dim, (tuple, list)) else [whole(dim)]
    dims = layout.wrap_dims(named, ndim)
    return tuple(range(ndim)) if not dims or not ndim else dims


def reduced_shape(shape, dims, keepdim: bool) -> tuple[int, ...]:
    """The shape after `dims` have become one value each."""
    if keepdim:
        return tuple([1 if d in dims else n for d, n in enumerate(shape)])
    return tuple([n for d, n in enumerate(shape) if d not in dims])


def spread(grad, shape, dims, keepdim: bool):
    """A reduced tensor expanded back over the dimensions it was reduced over."""
    return unreduced(grad, shape, dims, keepdim).expand(shape)


def unreduced(value, shape, dims, keepdim: bool):
    """A reduced tensor with its lost dimensions back, of size 1."""
    return value if keepdim else value.reshape(reduced_shape(shape, dims, True))


def conj(x):
    """The complex conjugate, in derivatives of functions of complex tensors."""
    return x.conj() if x.is_complex() else x
