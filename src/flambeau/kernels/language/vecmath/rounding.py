"""Rounding to whole numbers, exact, and the two instructions in which a product is rounded late or not at all."""

from __future__ import annotations

from flambeau.kernels.language.expr import copysign, eq, ne, where, xor
from flambeau.kernels.language.vecmath.machine import bits, format_of, from_bits, function, instruction, upper_half

HAS_FMA = "defined(__FMA__) || defined(__aarch64__)"
HAS_RINT = "defined(__SSE4_1__) || defined(__aarch64__)"


@instruction(HAS_FMA, "__builtin_fma{f}(x0, x1, x2)")
def fma(a, b, c):
    """a b + c."""
    return a * b + c


@instruction(HAS_FMA, "__builtin_fma{f}(x0, x1, x2)")
def exact_product_plus(a, b, c):
    """a b + c for the smaller c: the product of the upper halves is exact, and the rest is small."""
    a_top, b_top = upper_half(a), upper_half(b)
    return a_top * b_top + ((a_top * (b - b_top) + (a - a_top) * b) + c)


@instruction(HAS_FMA, "__builtin_fma(x0, x1, -x2)", kinds=("f64",))
def rest_of_product(a, b, product):
    """a b - product, where product = a b rounded: Dekker's sum of exact half products."""
    a_top, b_top = upper_half(a), upper_half(b)
    a_rest, b_rest = a - a_top, b - b_top
    return ((a_top * b_top - product) + a_top * b_rest + a_rest * b_top) + a_rest * b_rest


@instruction(HAS_FMA, "__builtin_fma(-x0, x1, x2)", kinds=("f64",))
def rest_of_quotient(q, b, a):
    """a - q b, exactly, for q = a / b rounded to a whole number of at most 50 bits."""
    product = q * b
    return (a - product) - rest_of_product(q, b, product)


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
def nextafter(a, b):
    """The number next to a towards b: as an integer, a's bits are one more or one less."""
    F = format_of(a)
    shrinks = xor(b > a, a > 0)
    beside = from_bits(bits(a) + where(shrinks, F.whole(2**F.bits - 1), 1))
    beside = where(eq(a, 0), copysign(from_bits(F.whole(1)), b), beside)
    return where(eq(a, b), b, where(ne(a, a) | ne(b, b), a + b, beside))


@function
def maximum(a, b):
    """The larger of the two; NaN if one of them is."""
    return where(eq(a, a), where(a > b, a, b), a)


@function
def minimum(a, b):
    """The smaller of the two; NaN if one of them is."""
    return where(eq(a, a), where(a < b, a, b), a)
