"""Exponentials and hyperbolic functions: x = n ln2 + r with |r| <= ln2 / 2, then e^x = 2^n e^r.

"(0.9, 1.1 ulp)" is the largest error found in float32 and in float64, in units in the last place.
"""

from __future__ import annotations

from math import inf

from flambeau.kernels.language.expr import copysign, polynomial, where
from flambeau.kernels.language.vecmath.machine import (
    DOUBLE,
    SINGLE,
    bits,
    fma,
    format_of,
    function,
    in_short_double,
    limits,
    near_forms,
    two_to,
)

LN2 = 0.6931471805599453
LOG2_E = 1.4426950408889634
# ln2 in two parts, for float32 and float64. The upper part is short, so that a whole exponent times it is exact.
LN2_HIGH, LN2_LOW = (0.693359375, 0.6931471803691238), (-2.1219444e-4, 1.9082149292705877e-10)

# e^r - 1 - r = r^2 (...), fitted to 2^-26 of e^r - 1 in float32 and 2^-55 in float64
REST_SINGLE = (0.5, 0.16666539, 0.0416666, 0.008367026, 0.0013921546)
REST_DOUBLE = (
    0.5000000000000006, 0.16666666666666685, 0.041666666666572205, 0.008333333333314498, 0.0013888888932879072,
    0.00019841269903301157, 2.4801503809023002e-05, 2.7557227637614807e-06, 2.7626591846134066e-07, 2.5114596632227808e-08,
)  # fmt: skip
# In double, but only to the 2^-34 that a float32 needs: e^r, and sinh x = x + x^3 (...) in x^2 up to 1
SHORT_EXP = (
    0.9999999999595174, 0.9999999999640351, 0.5000000107811892, 0.16666666995952198, 0.0416662180997173, 0.008333248629113435,
    0.0013948592506275025, 0.00019924178028662474,
)  # fmt: skip
SINH = (0.1666666648871336, 0.008333350598309473, 0.00019836066209128356, 2.8174398293495462e-06)
EXPM1_OF_TWICE = (2, *(c * 2.0 ** (k + 2) for k, c in enumerate(REST_SINGLE)))  # (e^2r - 1) / r


def is_moderate(x):
    """Whether e^x is a normal number."""
    return (x > format_of(x)(-87, -708)) & (x < format_of(x)(88, 709))


@near_forms(is_moderate)
@function
def exp(x, near=False):
    """e^x. (0.9, 0.9 ulp)"""
    return exp_over(x, 0, near)


def is_moderate_power(x):
    """Whether 2^x is a normal number."""
    return (x > format_of(x)(-126, -1022)) & (x < format_of(x)(127, 1023))


@near_forms(is_moderate_power)
@function
def exp2(x, near=False):
    """2^x. (1.1, 1.1 ulp)"""
    F = format_of(x)
    t = x + F.magic
    r = (x - (t - F.magic)) * LN2
    p = 1 + exp_rest(r, r)
    return p * power(t) if near else limits(x, F(-151, -1077), 0, F(129, 1025), inf, scale(p, t))


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
    """e / (e + 2) with e = e^2|x| - 1 = s (e^2r - 1) + (s - 1) and s = 2^n. (2.6, 2.5 ulp)"""
    a = abs(x)
    if format_of(x) is DOUBLE:
        e = expm1(2 * a)
        return copysign(where(a > 20, 1, e / (e + 2)), x)
    # The division takes as long as all the rest, beside which it runs: neither a polynomial near 0 nor an inverse by steps is faster.
    magic = SINGLE.magic + SINGLE.bias
    t = a * (2 * LOG2_E) + magic
    r = fma(t - magic, -LN2 / 2, a)
    s = two_to(bits(t))
    e = fma(s, r * polynomial(r, EXPM1_OF_TWICE), s - 1)
    return copysign(where(a > 20, 1, e / (e + 2)), x)


def sinh_single(x):
    """h - 1 / 4h with h = e^|x| / 2; below 1, x + x^3 (...)."""
    a = abs(x)
    h = 0.5 * exp_short(a)
    z = x * x
    near = x + x * z * polynomial(z, SINH)
    return where(a < 1, near, copysign(where(a > 90, inf, h - 0.25 / h), x))


@in_short_double(sinh_single)
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
    t = x * LOG2_E + F.magic
    n = t - F.magic
    hi = x - n * F(*LN2_HIGH)
    lo = fma(n, -F(*LN2_LOW), extra)
    return t, hi, exp_rest(hi + lo, lo)


def exp_rest(r, c):
    """e^r - 1 - r + c."""
    return fma(r * r, polynomial(r, format_of(r)(REST_SINGLE, REST_DOUBLE)), c)


def exp_short(x):
    """e^x in float64 to 2^-34, for |x| < 700."""
    t = x * LOG2_E + DOUBLE.magic
    return polynomial(fma(t - DOUBLE.magic, -LN2, x), SHORT_EXP) * power(t)


def exp_over(x, halvings, near=False):
    """e^x / 2^halvings."""
    F = format_of(x)
    magic = F.magic + 2 * F.bias  # so that scale has nothing to add
    t = x * LOG2_E + magic
    n = t - magic
    r = fma(n, -F(*LN2_LOW), fma(n, -F(*LN2_HIGH), x))
    p = polynomial(r, (1, 1, *F(REST_SINGLE, REST_DOUBLE)))
    if near:
        return p * two_to(bits(t) - F.bias)
    return limits(x, F(-104, -746), 0, F(90, 712), inf, in_two_factors(p, bits(t) - halvings if halvings else bits(t)))


def power(t):
    """2^n, for t = n + magic."""
    return two_to(bits(t) + format_of(t).bias)


def scale(p, t):
    """p 2^n, for t = n + magic."""
    return in_two_factors(p, bits(t) + 2 * format_of(p).bias)


def in_two_factors(p, k):
    """p 2^n, where the low bits of k are n + 2 bias: 2^n itself may be too small or too large a number while the product is not."""
    half = k >> 1
    return p * two_to(half) * two_to(k - half)
