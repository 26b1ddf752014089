"""Exponentials, logarithms, trigonometric and hyperbolic functions. Integers and bools become the default float."""

from __future__ import annotations

import math

from flambeau.kernels import expr as e
from flambeau.ops.declare import choice, composite, pointwise
from flambeau.ops.promotion import promoted

# -- exponentials ----------------------------------------------------------------------------------------------------


@pointwise(rule="float", inplace=True, autocast="float32")
def exp(input):
    """e to the power of input."""
    return e.exp(input)


@pointwise(rule="float", inplace=True, aliases=("special.exp2",))
def exp2(input):
    """2 to the power of input."""
    return e.exp2(input)


@pointwise(rule="float", inplace=True, autocast="float32", aliases=("special.expm1",))
def expm1(input):
    """exp(input) - 1, exact where input is small."""
    return e.expm1(input)


@pointwise(rule="float", inplace=True, aliases=("special.expit", "nn.functional.sigmoid"))
def sigmoid(input):
    """1 / (1 + exp(-input))."""
    return e.sigmoid(input)


# -- logarithms ------------------------------------------------------------------------------------------------------


@pointwise(rule="float", inplace=True, autocast="float32")
def log(input):
    """The natural logarithm."""
    return e.log(input)


@pointwise(rule="float", inplace=True, autocast="float32")
def log2(input):
    """The logarithm to base 2."""
    return e.log2(input)


@pointwise(rule="float", inplace=True, autocast="float32")
def log10(input):
    """The logarithm to base 10."""
    return e.log10(input)


@pointwise(rule="float", inplace=True, autocast="float32", aliases=("special.log1p",))
def log1p(input):
    """log(1 + input), exact where input is small."""
    return e.log1p(input)


@pointwise(public=False, method=False, dtypes="float", complex=False, numbers=False)
def _logaddexp(input, other):
    """The larger plus log1p(exp(-difference)): nothing overflows."""
    larger, difference = e.maximum(input, other), abs(input - other)
    # Two equal infinities have no difference, and their sum is the same infinity.
    return e.where(e.isinf(larger) & e.eq(input, other), larger, larger + e.log1p(e.exp(-difference)))


_logaddexp.derivative(
    input=lambda grad, input, other: grad / (1 + e.exp(other - input)),
    other=lambda grad, input, other: grad / (1 + e.exp(input - other)),
)


@choice
def logaddexp(input, other):
    """log(exp(input) + exp(other)), without overflow."""
    if promoted(input, other).is_complex:
        return _logaddexp_complex, input, other
    return _logaddexp, input, other


@composite(public=False, method=False, out=True)
def _logaddexp_complex(input, other):
    """The same for complex numbers: the one with the larger real part is taken out."""
    larger, smaller = (input, other), (other, input)
    first = input.real >= other.real
    larger, smaller = (_pick(first, *pair) for pair in (larger, smaller))
    return larger + (smaller - larger).exp().log1p()


def _pick(condition, a, b):
    return a.where(condition, b)


@pointwise(dtypes="float", complex=False, numbers=False)
def logaddexp2(input, other):
    """log2(2 ** input + 2 ** other), without overflow."""
    larger, difference = e.maximum(input, other), abs(input - other)
    sum = larger + e.log1p(e.exp2(-difference)) * (1 / math.log(2))
    return e.where(e.isinf(larger) & e.eq(input, other), larger, sum)


logaddexp2.derivative(
    input=lambda grad, input, other: grad / (1 + e.exp2(other - input)),
    other=lambda grad, input, other: grad / (1 + e.exp2(input - other)),
)

# -- angles ----------------------------------------------------------------------------------------------------------


@pointwise(rule="float", inplace=True)
def sin(input):
    """The sine."""
    return e.sin(input)


@pointwise(rule="float", inplace=True)
def cos(input):
    """The cosine."""
    return e.cos(input)


@pointwise(rule="float", inplace=True, autocast="float32")
def tan(input):
    """The tangent."""
    return e.tan(input)


@pointwise(rule="float", inplace=True, autocast="float32", aliases=("arcsin",))
def asin(input):
    """The angle between -pi/2 and pi/2 whose sine is input."""
    return e.asin(input)


@pointwise(rule="float", inplace=True, autocast="float32", aliases=("arccos",))
def acos(input):
    """The angle between 0 and pi whose cosine is input."""
    return e.acos(input)


@pointwise(rule="float", inplace=True, aliases=("arctan",))
def atan(input):
    """The angle between -pi/2 and pi/2 whose tangent is input."""
    return e.atan(input)


@pointwise(rule="float", inplace=True, complex=False, numbers=False, autocast="widest", aliases=("arctan2",))
def atan2(input, other):
    """The angle of the point with ordinate input and abscissa other, between -pi and pi."""
    return e.atan2(input, other)


@pointwise(rule="float", inplace=True, complex="deg2rad is not supported for complex tensors.")
def deg2rad(input):
    """Degrees to radians."""
    return input * (math.pi / 180)


@pointwise(rule="float", inplace=True, complex="rad2deg is not supported for complex tensors.")
def rad2deg(input):
    """Radians to degrees."""
    return input * (180 / math.pi)


@pointwise(rule="float", inplace=True, aliases=("special.sinc",))
def sinc(input):
    """sin(pi x) / (pi x), 1 at zero."""
    t = input * math.pi
    return e.where(e.eq(input, 0), 1, e.sin(t) / t)


sinc.derivative(input=lambda grad, input: _sinc_slope(grad, input * math.pi, input))


def _sinc_slope(grad, t, x):
    return e.where(e.eq(x, 0), 0, grad * e.conj((t * e.cos(t) - e.sin(t)) / (t * x)))


# -- hyperbolic ------------------------------------------------------------------------------------------------------


@pointwise(rule="float", inplace=True, autocast="float32")
def sinh(input):
    """The hyperbolic sine."""
    return e.sinh(input)


@pointwise(rule="float", inplace=True, autocast="float32")
def cosh(input):
    """The hyperbolic cosine."""
    return e.cosh(input)


@pointwise(rule="float", inplace=True, aliases=("nn.functional.tanh",))
def tanh(input):
    """The hyperbolic tangent."""
    return e.tanh(input)


@pointwise(rule="float", inplace=True, aliases=("arcsinh",))
def asinh(input):
    """The number whose hyperbolic sine is input."""
    return e.asinh(input)


@pointwise(rule="float", inplace=True, aliases=("arccosh",))
def acosh(input):
    """The number from 0 on whose hyperbolic cosine is input."""
    return e.acosh(input)


@pointwise(rule="float", inplace=True, aliases=("arctanh",))
def atanh(input):
    """The number whose hyperbolic tangent is input."""
    return e.atanh(input)
