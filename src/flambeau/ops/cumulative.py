"""Cumulative sums, products and extrema: each element takes in all that stand before it along a dimension."""

from __future__ import annotations

import numpy as np

from flambeau import dtypes
from flambeau.kernels import arrays, layout
from flambeau.kernels.scan import running_extremum, scan
from flambeau.ops.asking import anywhere
from flambeau.ops.declare import OPS, on_arrays
from flambeau.ops.reductions import conj, float_dtype, summed_dtype
from flambeau.ops.shape_rules import like_input
from flambeau.ops.views import whole


def _declare(name: str, doc: str):
    """Declare cumsum or cumprod."""

    @on_arrays(name=name, inplace=True, doc=doc)
    def cumulative(input, dim, *, dtype=None):
        return scan(name, input, layout.wrap_dim(whole(dim), input.ndim), summed_dtype(name, input, dtype))

    cumulative.meta(lambda input, dim, *, dtype=None: (input.shape, summed_dtype(name, input, dtype)))
    return cumulative


cumsum = _declare("cumsum", "y_i = x_1 + ... + x_i along `dim`. Integers and bools are summed in int64. Same shape.")
cumprod = _declare("cumprod", "y_i = x_1 * ... * x_i along `dim`. Integers and bools are multiplied in int64. Same shape.")
cumsum.derivative(input=lambda grad, dim: _from_the_end(grad, dim))
cumsum.quick_derivative(input=lambda grad, dim: _quickly_from_the_end(grad, dim))
cumprod.derivative(input=lambda grad, input, result, dim: _cumprod_backward(grad, input, result, dim))


def _quickly_from_the_end(grad, dim):
    if not grad.ndim or grad.dtype.char not in "fd":
        return NotImplemented
    return arrays.contiguous(np.flip(scan("cumsum", arrays.contiguous(np.flip(grad, dim)), dim % grad.ndim, grad.dtype), dim))


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


@on_arrays
def logcumsumexp(input, dim):
    """y_i = log(exp(x_1) + ... + exp(x_i)) along `dim`, without overflow. Same shape."""
    if input.dtype.kind in "biu":
        raise NotImplementedError(f'"logcumsumexp" not implemented for {input.dtype.name}. Try x.float()')
    return scan("logcumsumexp", input, layout.wrap_dim(whole(dim), input.ndim), float_dtype(input))


logcumsumexp.derivative(input=lambda grad, input, result, dim: _logcumsumexp_backward(grad, input, result, dim))
logcumsumexp.meta(like_input)


def _logcumsumexp_backward(grad, input, result, dim):
    """dL/dx_k = sum over i >= k of grad_i exp(x_k - y_i).

    In logarithms, because exp(-y_i) alone may overflow: positive and negative gradients are added up apart, as log|grad_i| - y_i. What is
    left out counts as the lowest finite number and not as -inf, which would make the next derivative NaN.
    """
    if not input.dim() or not input.numel():
        return grad
    if input.is_complex():
        return conj(_exp_sum_from_the_end(conj(grad).log(), input, result, dim))
    low = dtypes.finfo(input.dtype).min
    size = grad.abs().log()
    up = _exp_sum_from_the_end(size.masked_fill(grad <= 0, low), input, result, dim)
    down = _exp_sum_from_the_end(size.masked_fill(grad >= 0, low), input, result, dim)
    return up - down


def _exp_sum_from_the_end(log_grad, input, result, dim):
    return ((log_grad - result).flip(dim).logcumsumexp(dim).flip(dim) + input).exp()


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
