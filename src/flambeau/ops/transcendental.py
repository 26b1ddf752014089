"""Exponentials, logarithms, trigonometric and hyperbolic functions. Integers and bools become the default float."""

from __future__ import annotations

import functools
import math

from flambeau.kernels.language import expr as e
from flambeau.ops.declare import choice, composite, pointwise
from flambeau.ops.nodes import unary
from flambeau.ops.promotion import promoted

function = functools.partial(unary, rule="float", inplace=True)

# -- exponentials ----------------------------------------------------------------------------------------------------

exp = function("exp", "e to the power of input.", autocast="cuda float32")
exp2 = function("exp2", "2 to the power of input.", aliases=("special.exp2",))
expm1 = function("expm1", "exp(input) - 1, exact where input is small.", aliases=("special.expm1",), autocast="cuda float32")
sigmoid = function("sigmoid", "1 / (1 + exp(-input)).", aliases=("special.expit", "nn.functional.sigmoid"))


# -- logarithms ------------------------------------------------------------------------------------------------------

log = function("log", "The natural logarithm.", autocast="cuda float32")
log2 = function("log2", "The logarithm to base 2.", autocast="cuda float32")
log10 = function("log10", "The logarithm to base 10.", autocast="cuda float32")
log1p = function("log1p", "log(1 + input), exact where input is small.", aliases=("special.log1p",), autocast="cuda float32")


def _log_of_sum(input, other, rest):
    """The larger plus log(1 + exp(-difference)), which is rest(-difference): nothing overflows."""
    larger, difference = e.maximum(input, other), abs(input - other)
    # Two equal infinities have no difference, and their sum is the same infinity.
    return e.where(e.isinf(larger) & e.eq(input, other), larger, larger + rest(-difference))


@pointwise(public=False, method=False, dtypes="float", complex=False, numbers=False)
def _logaddexp(input, other):
    return _log_of_sum(input, other, lambda d: e.log1p(e.exp(d)))


_logaddexp.derivative(
    input=lambda grad, input, other: grad / (1 + e.exp(other - input)), other=lambda grad, input, other: grad / (1 + e.exp(input - other))
)


@choice
def logaddexp(input, other):
    """log(exp(input) + exp(other)), without overflow."""
    return (_logaddexp_complex if promoted(input, other).is_complex else _logaddexp), input, other


@composite(public=False, method=False, out=True)
def _logaddexp_complex(input, other):
    """The same for complex numbers: the one with the larger real part is taken out. Of two that end at one infinity nothing can be."""
    first = input.real >= other.real
    larger, smaller = input.where(first, other), other.where(first, input)
    endless = (larger.real == smaller.real) & larger.real.isinf()
    of_endless = (larger.where(endless, 0).exp() + smaller.where(endless, 0).exp()).log()
    found = (larger + (smaller - larger).exp().log1p()).where(~endless, of_endless.where(larger.real > 0, smaller))
    return found.masked_fill((input != input) | (other != other), complex(math.nan, math.nan))


@pointwise(dtypes="float", complex=False, numbers=False)
def logaddexp2(input, other):
    """log2(2 ** input + 2 ** other), without overflow."""
    return _log_of_sum(input, other, lambda d: e.log1p(e.exp2(d)) * (1 / math.log(2)))


logaddexp2.derivative(
    input=lambda grad, input, other: grad / (1 + e.exp2(other - input)), other=lambda grad, input, other: grad / (1 + e.exp2(input - other))
)

# -- angles ----------------------------------------------------------------------------------------------------------

sin = function("sin", "The sine.")
cos = function("cos", "The cosine.")
tan = function("tan", "The tangent.", autocast="cuda float32")
asin = function("asin", "The angle between -pi/2 and pi/2 whose sine is input.", aliases=("arcsin",), autocast="cuda float32")
acos = function("acos", "The angle between 0 and pi whose cosine is input.", aliases=("arccos",), autocast="cuda float32")
atan = function("atan", "The angle between -pi/2 and pi/2 whose tangent is input.", aliases=("arctan",))


@pointwise(rule="float", inplace=True, complex=False, numbers=False, aliases=("arctan2",), autocast="cuda widest")
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
    square = t * x  # is 0 long before x is
    return e.where(e.eq(square, 0), 0, grad * e.conj((t * e.cos(t) - e.sin(t)) / square))


# -- hyperbolic ------------------------------------------------------------------------------------------------------

sinh = function("sinh", "The hyperbolic sine.", autocast="cuda float32")
cosh = function("cosh", "The hyperbolic cosine.", autocast="cuda float32")
tanh = function("tanh", "The hyperbolic tangent.", aliases=("nn.functional.tanh",))
asinh = function("asinh", "The number whose hyperbolic sine is input.", aliases=("arcsinh",))
acosh = function("acosh", "The number from 0 on whose hyperbolic cosine is input.", aliases=("arccosh",))
atanh = function("atanh", "The number whose hyperbolic tangent is input.", aliases=("arctanh",))
