"""Cumulative sums, products and extrema: each element takes in all that stand before it along a dimension."""

from __future__ import annotations

import numpy as np

from flambeau import dtypes
from flambeau.kernels import arrays, layout
from flambeau.kernels.reductions.along_dim import ready
from flambeau.kernels.reductions.scan import running_extremum, scan
from flambeau.ops import specs
from flambeau.ops.asking import anywhere
from flambeau.ops.declare import OPS, on_arrays
from flambeau.ops.reductions import conj, float_dtype, summed_dtype
from flambeau.ops.views import whole


def _declare(name: str, doc: str):
    """Declare cumsum or cumprod."""

    @on_arrays(name=name, inplace=True, out="decides whole", doc=doc, autocast="cuda float32 unless dtype")
    def cumulative(input, dim, *, dtype=None):
        return scan(name, input, layout.wrap_dim(whole(dim), input.ndim), summed_dtype(name, input, dtype))

    @cumulative.work
    def _(input, dim, dtype):
        known = (dtype is None or dtype.numpy == input.dtype) and input.ndim and input.dtype.kind not in "biu"
        return ready(name, input, layout.wrap_dim(dim, input.ndim), indices=False) if known else None

    cumulative.meta(lambda input, dim, *, dtype=None: (input.shape, summed_dtype(name, input, dtype)))
    return cumulative


cumsum = _declare("cumsum", "y_i = x_1 + ... + x_i along `dim`. Integers and bools are summed in int64. Same shape.")
cumprod = _declare("cumprod", "y_i = x_1 * ... * x_i along `dim`. Integers and bools are multiplied in int64. Same shape.")
cumsum.derivative(input=lambda grad, dim: _from_the_end(grad, dim))
cumprod.derivative(input=lambda grad, input, result, dim: _cumprod_backward(grad, input, result, dim))


def _from_the_end(x, dim):
    """Cumulative sums from the last element to the first."""
    return x.flip(dim).cumsum(dim).flip(dim) if x.dim() else x


def _cumprod_backward(grad, input, result, dim):
    """dL/dx_k = sum over i >= k of grad_i * (y_i / x_k), where a zero x_k must not be divided by.

    Let z be the first zero of a row. Before z the formula above holds. After z every product contains x_z = 0, so the gradient is zero.
    At z it is the sum over i >= z of grad_i times the product without x_z: put 1 in its place.
    """
    if not input.dim() or not input.numel():
        return grad
    input = input.to(result.dtype)
    zero = input == 0
    if not anywhere(zero):
        return _from_the_end(grad * conj(result), dim) / conj(input)
    if result.requires_grad:  # the gradient is to be differentiated again
        return _cumprod_backward_term_by_term(grad, input, dim)
    zeros_so_far = zero.cumsum(dim)
    first_zero = zero.logical_and(zeros_so_far == 1)
    before = _from_the_end(grad * conj(result), dim) / conj(input)
    at = _from_the_end((grad * conj(input.masked_fill(first_zero, 1).cumprod(dim))).masked_fill(zeros_so_far == 0, 0), dim)
    return before.masked_fill(zeros_so_far > 0, 0) + at.masked_fill(first_zero.logical_not(), 0)


def _cumprod_backward_term_by_term(grad, input, dim):
    """The same without any division, as products of the others: slower, but right to differentiate again where there are zeros."""
    dim = layout.wrap_dim(dim, input.dim())
    n = input.shape[dim]
    one = input.new_ones([1 if d == dim else s for d, s in enumerate(input.shape)])
    terms = []
    for k in range(n):
        before = input.narrow(dim, 0, k).prod(dim, keepdim=True) if k else one
        after = OPS["cat"]([one, input.narrow(dim, k + 1, n - k - 1)], dim).cumprod(dim)
        terms.append((grad.narrow(dim, k, n - k) * conj(before * after)).sum(dim, keepdim=True))
    return OPS["cat"](terms, dim)


@on_arrays(out="same whole")
def logcumsumexp(input, dim):
    """y_i = log(exp(x_1) + ... + exp(x_i)) along `dim`, without overflow. Same shape."""
    if input.dtype.kind in "biu":
        raise NotImplementedError(f'"logcumsumexp" not implemented for {input.dtype.name}. Try x.float()')
    return scan("logcumsumexp", input, layout.wrap_dim(whole(dim), input.ndim), float_dtype(input))


logcumsumexp.derivative(
    input=lambda grad, input, result, dim: conj(_weighed(conj(grad), input, result, dim, True)) if input.dim() else grad
)
logcumsumexp.meta(specs.contiguous)


@on_arrays
def _weighed(values, input, result, dim, back):
    """Values times the matrix exp(x_k - y_i), k <= i: out_k = sum over i >= k of values_i exp(x_k - y_i); if not `back`, its transpose,
    out_i = sum over k <= i of values_k exp(x_k - y_i).

    In logarithms, because exp(-y_i) alone may overflow, positive and negative values apart. Linear in the values, and so are the derivatives.
    """
    xp = arrays.module_of(values)
    dim = layout.wrap_dim(whole(dim), values.ndim)
    dtype = dtypes.float32.numpy if values.dtype.itemsize < 4 else values.dtype
    v, x, y = (arrays.cast(a, dtype) for a in (values, input, result))

    def total(logs):
        if back:
            logs = xp.flip(scan("logcumsumexp", xp.flip(logs - y, dim), dim, dtype), dim) + x
        else:
            logs = scan("logcumsumexp", logs + x, dim, dtype) - y
        return xp.exp(logs)

    with np.errstate(divide="ignore", invalid="ignore"):
        if v.dtype.kind == "c":
            return arrays.cast(total(xp.log(v)), values.dtype)
        size = xp.log(abs(v))
        up, down = (total(xp.where(side, size, -xp.inf)) for side in (v > 0, v < 0))
        return arrays.cast(up - down, values.dtype)


_weighed.meta(specs.contiguous)
_weighed.derivative(
    values=lambda grad, input, result, dim, back: conj(_weighed(conj(grad), input, result, dim, not back)),
    input=lambda grad, values, input, result, dim, back: (
        grad * conj(_weighed(values, input, result, dim, True)) if back else conj(values * _weighed(conj(grad), input, result, dim, True))
    ),
    result=lambda grad, values, input, result, dim, back: (
        -conj(values * _weighed(conj(grad), input, result, dim, False))
        if back
        else -grad * conj(_weighed(values, input, result, dim, False))
    ),
)


# -- extrema ------------------------------------------------------------------------------------------------------------------


def _collected(grad, indices, dim, input_shape):
    return grad.new_zeros(input_shape).scatter_add_(dim, indices, grad) if input_shape else grad


def _declare_extremum(name: str, which: str) -> None:
    """Declare cummax or cummin."""
    doc = f"The {which} of all elements up to each place along `dim`, and its index (of equals, the latest)."

    @on_arrays(name=name, returns="values indices", out="same", doc=doc)
    def running(input, dim):
        if input.dtype.kind == "c":
            raise NotImplementedError(f'"{name}" not implemented for complex numbers, which have no order')
        return running_extremum(name, input, layout.wrap_dim(whole(dim), input.ndim))

    running.derivative(input=_collected)
    running.meta(lambda input, dim: [(input.shape, input.dtype), (input.shape, dtypes.int64.numpy)])


_declare_extremum("cummax", "largest")
_declare_extremum("cummin", "smallest")
