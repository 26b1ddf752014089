"""Exponentials and hyperbolic functions: x = n ln2 + r with |r| <= ln2 / 2, then e^x = 2^n e^r.

"(0.9, 1.1 ulp)" is the largest error found in float32 and in float64, in units in the last place.
"""

from __future__ import annotations

from math import inf

from flambeau.kernels.expr import copysign, polynomial, where
from flambeau.kernels.vecmath.machine import DOUBLE, SINGLE, bits, fma, format_of, function, in_double, inverse, limits, two_to

LN2 = 0.6931471805599453
LOG2_E = 1.4426950408889634

# e^r - 1 - r = r^2 (...), fitted to 2^-26 of e^r - 1 in float32 and 2^-55 in float64
REST_SINGLE = (0.5, 0.16666539, 0.0416666, 0.008367026, 0.0013921546)
REST_DOUBLE = (
    0.5000000000000006, 0.16666666666666685, 0.041666666666572205, 0.008333333333314498, 0.0013888888932879072,
    0.00019841269903301157, 2.4801503809023002e-05, 2.7557227637614807e-06, 2.7626591846134066e-07, 2.5114596632227808e-08,
)  # fmt: skip


@function
def exp(x):
    """e^x. (0.9, 0.9 ulp)"""
    return exp_over(x, 0)


@function
def exp2(x):
    """2^x. (1.1, 1.1 ulp)"""
    F = format_of(x)
    t = x + F.magic
    r = (x - (t - F.magic)) * LN2
    return limits(x, F(-151, -1077), 0, F(129, 1025), inf, scale(1 + exp_rest(r, r), t))


@function
def expm1(x):
    """e^x - 1 = 2 (s hi + (s - 1/2) + s lo) with s = 2^(n-1); where the first two cancel they are exact. (1.2, 1.2 ulp)"""
    F = format_of(x)
    t, hi, lo = exp_split(x)
    s = power(t - 1)
    r = 2 * ((s * hi + (s - 0.5)) + s * lo)
    r = where(abs(x) < F(2.0**-26, 2.0**-55), x, r)
    return limits(x, -40, -1, F(89, 710), inf, r)


@function
def sigmoid(x):
    """1 / (1 + e^-x) = 1 / (1 + s + s p) with s = 2^n. (1.7, 1.7 ulp)

    Far out the sum is taken small enough to stay finite where the result is subnormal, and the 1 goes with the smaller term.
    """
    F = format_of(x)
    t, hi, lo = exp_split(-x)
    far = x < F(-16, -36)
    s = power(t - where(far, F(64, 512), 0))
    one = where(far, F(2.0**-64, 2.0**-512), 1)
    r = one / ((s + where(far, 0, one)) + (s * (hi + lo) + where(far, one, 0)))
    return limits(x, F(-104, -746), 0, 40, 1, r)


@function
def tanh(x):
    """The hyperbolic tangent. (1.3, 2.5 ulp)"""
    a = abs(x)
    if format_of(x) is DOUBLE:  # e / (e + 2) with e = e^2a - 1
        e = expm1(2 * a)
        return copysign(where(a > 20, 1, e / (e + 2)), x)
    # Below 0.6 a polynomial, above 1 - 1 / (s + 1/2 + s p) with s = 2^(n-1).
    z = x * x
    near = a + a * z * polynomial(z, (-0.333333, 0.13331936, -0.053784724, 0.020798713, -0.0058981543))
    t, r = exp_reduced(2 * a)
    s = two_to(bits(t) + (SINGLE.bias - 1))
    far = 1 - inverse(fma(s, exp_rest(r, r), s + 0.5))
    return copysign(limits(a, 0.6, near, 10, 1, far), x)


@in_double
def sinh(x):
    """(e + e / (e + 1)) / 2 with e = e^|x| - 1; beyond 40, e^|x| / 2 to the last digit. (0.5, 2.2 ulp)"""
    a = abs(x)
    e = expm1(a)
    r = 0.5 * (e + e / (e + 1))
    return where(a < 2.0**-28, x, copysign(where(a > 40, exp_over(a, 1), r), x))


@function
def cosh(x):
    """h + 1 / 4h with h = e^|x| / 2. (1.5, 1.5 ulp)"""
    h = exp_over(abs(x), 1)
    return h + 0.25 / h


# -- the parts -----------------------------------------------------------------------------------------------------------


def exp_split(x, extra=0):
    """(t, hi, lo): e^(x + extra) = 2^n (1 + (hi + lo)) and t = n + magic. hi is exact, so that only the small lo is rounded."""
    F = format_of(x)
    # The upper part of ln2 is short, so that a whole exponent times it is exact.
    ln2_hi, ln2_lo = F(0.693359375, 0.6931471803691238), F(-2.1219444e-4, 1.9082149292705877e-10)
    t = x * LOG2_E + F.magic
    n = t - F.magic
    hi = x - n * ln2_hi
    lo = fma(n, -ln2_lo, extra)
    return t, hi, exp_rest(hi + lo, lo)


def exp_rest(r, c):
    """e^r - 1 - r + c."""
    return fma(r * r, polynomial(r, format_of(r)(REST_SINGLE, REST_DOUBLE)), c)


def exp_over(x, halvings):
    """e^x / 2^halvings."""
    F = format_of(x)
    t, hi, lo = exp_split(x)
    return limits(x, F(-104, -746), 0, F(90, 712), inf, scale(1 + (hi + lo), t - halvings if halvings else t))


def exp_near(x):
    """e^x in float32 for -80 < x < 80: in one factor, and to 2 ulp."""
    t, r = exp_reduced(x)
    return (1 + exp_rest(r, r)) * power(t)


def exp_reduced(x):
    """(t, r): e^x = 2^n e^r and t = n + magic, in float32, whose ln2 happens to be right to 2^-29."""
    t = x * LOG2_E + format_of(x).magic
    return t, fma(t - format_of(x).magic, -LN2, x)


def power(t):
    """2^n, for t = n + magic."""
    return two_to(bits(t) + format_of(t).bias)


def scale(p, t):
    """p 2^n. In two factors: 2^n itself may be too small or too large a number while the product is not."""
    F = format_of(p)
    k = bits(t) - bits_of_magic(F) + 2 * F.bias
    half = k >> 1
    return p * two_to(half) * two_to(k - half)


def bits_of_magic(F) -> int:
    """The bits of 1.5 2^mantissa: exponent mantissa + bias, then a one."""
    return (F.mantissa + F.bias << F.mantissa) + (1 << F.mantissa - 1)
