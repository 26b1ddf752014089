"""Logarithms: x = 2^k (1 + f) with 1 + f between sqrt(1/2) and sqrt(2), then log x = k ln2 + log(1 + f)."""

from __future__ import annotations

from math import inf, nan

from flambeau.kernels.language.expr import copysign, eq, polynomial, sqrt, where
from flambeau.kernels.language.vecmath.exponentials import LN2, LOG2_E
from flambeau.kernels.language.vecmath.machine import (
    DOUBLE,
    bits,
    cast,
    exact_product_plus,
    fma,
    format_of,
    from_bits,
    function,
    in_double,
    near_forms,
    number,
    two_to,
)

# log(1 + f) - f + f^2/2 = f^3 (...)
REST_SINGLE = (0.3333333, -0.2500082, 0.20001228, -0.16623358, 0.14201725, -0.1316014, 0.12761773, -0.0763484)
# log(1 + f) = 2 atanh s = s (2 + s^2 (...)) with s = f / (2 + f)
REST_DOUBLE = (
    0.6666666666666734, 0.3999999999941555, 0.2857142874220522, 0.22222198589971828, 0.18183563577520917, 0.15314066362840728,
    0.14795824023704598,
)  # fmt: skip


def is_normal(x):
    """Whether x is positive, finite and not subnormal: nothing to ask, and nothing to bring into range."""
    F = format_of(x)
    return (x >= F.tiny) & (x < inf)


REST_SHORT = (0.666666656412501, 0.4000033622670431, 0.2853723793378053, 0.23583575261226547)  # good enough for a float32


@near_forms(is_normal)
@function
def log(x, near=False):
    """The natural logarithm. (0.9, 0.8 ulp)"""
    k, f = log_split(x, near)
    return log_sum(x, k, f, near)


@function
def log1p(x):
    """log(1 + x). k is that of the rounded 1 + x, but f = 2^-k x + (2^-k - 1) is rounded once. (1.5, 1.4 ulp)"""
    F = format_of(x)
    e = exponent(1 + x)
    half = e >> 1
    top = F.bias * 3 // 2  # 2^-k in two factors: it may be too large for one
    p, q = two_to(top - half), two_to(top + 1 - (e - half))
    return copysign(log_sum(1 + x, number(e) - F.bias, x * p * q + (p * q - 1)), x)


@near_forms(is_normal)
@function
def log2(x, near=False):
    """The logarithm to base 2. (0.9, 0.8 ulp)"""
    F = format_of(x)
    c = F(1.4426950216293335, LOG2_E), F(1.925963033500011e-08, 2.0355273740931033e-17)
    return log_to_base(x, c, (1, 0), near)


@near_forms(is_normal)
@function
def log10(x, near=False):
    """The logarithm to base 10. (0.9, 0.8 ulp)"""
    F = format_of(x)
    c = F(0.4342944920063019, 0.4342944819032518), F(-1.0103049952192578e-08, 1.098319650216765e-17)
    two = F(0.301025390625, 0.3010299956640665), F(4.605039e-06, -8.532344317057107e-14)
    return log_to_base(x, c, two, near)


@in_double
def asinh(x):
    """log(a + sqrt(1 + a^2)), arranged as a log1p that keeps its digits; for the huge, log 2a. (0.5, 1.7 ulp)"""
    a = abs(x)
    t = a + a * a / (1 + sqrt(1 + a * a))
    huge = a > 2.0**500
    return copysign(log1p(where(huge, a, t)) + where(huge, LN2, 0), x)


@in_double
def acosh(x):
    """log(x + sqrt(x^2 - 1)), in the same way. (0.5, 2.6 ulp)"""
    t = x - 1
    huge = x > 2.0**500
    return where(x < 1, nan, log1p(where(huge, x, t + sqrt(t * (t + 2)))) + where(huge, LN2, 0))


@in_double
def atanh(x):
    """log((1 + a) / (1 - a)) / 2, in the same way. (0.5, 2.1 ulp)"""
    a = abs(x)
    return copysign(0.5 * log1p(2 * a / (1 - a)), x)


# -- the parts -----------------------------------------------------------------------------------------------------------


def exponent(x):
    """k + bias, an integer."""
    F = format_of(x)
    root_half = F(0x3F3504F3, 0x3FE6A09E667F3BCD)  # the bits of sqrt(1/2)
    return (bits(x) + ((F.bias << F.mantissa) - root_half)) >> F.mantissa


def log_split(x, near=False):
    """(k, f) of x > 0; subnormals are multiplied into the normal range first."""
    F = format_of(x)
    if near:
        return log_split_normal(x)
    up = where(x < F.tiny, F.whole(F.mantissa), 0)
    y = x * two_to(F.bias + up)
    e = exponent(y)
    f = from_bits(bits(y) - ((e - F.bias) << F.mantissa)) - 1
    return number(e) - number(F.bias + up), f


def log_split_normal(x):
    """(k, f) of a normal x > 0."""
    F = format_of(x)
    e = exponent(x)
    if F is DOUBLE:
        return number(e) - F.bias, from_bits(bits(x) - ((e - F.bias) << F.mantissa)) - 1
    k = e - F.bias
    return cast(cast(k, "i32"), "f32"), from_bits(bits(x) - (k << F.mantissa)) - 1


def log_rest(f):
    """log(1 + f) - f + f^2/2."""
    if format_of(f) is DOUBLE:
        s = f / (2 + f)
        z = s * s
        return s * fma(z, polynomial(z, REST_DOUBLE), 0.5 * f * f)
    return f * f * f * polynomial(f, REST_SINGLE)


def log_sum(x, k, f, near=False):
    """k ln2 + log(1 + f), from the small to the large."""
    F = format_of(x)
    ln2_hi, ln2_lo = F(0.693359375, 0.6931471803691238), F(-2.1219444e-4, 1.9082149292705877e-10)
    return log_edges(x, k * ln2_hi + (f + (fma(k, ln2_lo, log_rest(f)) - 0.5 * f * f)), near)


def log_short(x):
    """log x in float64 to 2^-37, for a normal x > 0."""
    k, f = log_split_normal(x)
    s = f / (2 + f)
    z = s * s
    return fma(k, LN2, s * fma(z, polynomial(z, REST_SHORT), 2.0))


def log_edges(x, r, near=False):
    """r, but -inf at 0, NaN below, infinity and NaN as they come."""
    return r if near else where(x < inf, where(eq(x, 0), -inf, where(x < 0, nan, r)), x)


def log_to_base(x, c, two, near):
    """Another base: c is 1 / log(base) and `two` the logarithm of 2, each in an upper part and a rest.

    The product with the upper part is not rounded before all the rest is added to it.
    """
    k, f = log_split(x, near)
    rest = fma(f, c[1], fma(-0.5 * f, f, log_rest(f)) * c[0])
    rest = fma(k, two[1], rest) if two[1] else rest
    return log_edges(x, k * two[0] + exact_product_plus(f, c[0], rest), near)
