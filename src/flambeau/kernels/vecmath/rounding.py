"""Rounding to whole numbers, exact, and the two instructions in which a product is rounded late or not at all."""

from __future__ import annotations

from flambeau.kernels.expr import copysign, eq, where
from flambeau.kernels.vecmath.machine import format_of, function, instruction, upper_half

HAS_FMA = "defined(__FMA__) || defined(__aarch64__)"
HAS_RINT = "defined(__SSE4_1__) || defined(__aarch64__)"


@instruction(HAS_FMA, "__builtin_fma{f}(x0, x1, x2)")
def fma(a, b, c):
    """a b + c."""
    return a * b + c


@instruction(HAS_FMA, "__builtin_fma(x0, x1, -x2)", kinds=("f64",))
def rest_of_product(a, b, product):
    """a b - product, where product = a b rounded: Dekker's sum of exact half products."""
    a_top, b_top = upper_half(a), upper_half(b)
    a_rest, b_rest = a - a_top, b - b_top
    return ((a_top * b_top - product) + a_top * b_rest + a_rest * b_top) + a_rest * b_rest


@instruction(HAS_RINT, "__builtin_rint{f}(x0)")
def rint(x):
    """The nearest whole number, the even one of two: adding and subtracting 2^23 (2^52) rounds."""
    whole = 2.0 ** format_of(x).mantissa
    a = abs(x)
    return copysign(where(a < whole, (a + whole) - whole, a), x)


@function
def floor(x):
    """The largest whole number that is not above x."""
    r = rint(x)
    return r - where(r > x, 1, 0)


@function
def ceil(x):
    """The smallest whole number that is not below x."""
    return -floor(-x)


@function
def trunc(x):
    """x without its fraction."""
    return copysign(floor(abs(x)), x)


@function
def maximum(a, b):
    """The larger of the two; NaN if one of them is."""
    return where(a > b, a, where(eq(a, a), b, a))


@function
def minimum(a, b):
    """The smaller of the two; NaN if one of them is."""
    return where(a < b, a, where(eq(a, a), b, a))
