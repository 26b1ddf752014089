"""Powers and roots."""

from __future__ import annotations

from math import inf, nan

from flambeau.kernels.language.expr import copysign, eq, ne, polynomial, rint, sqrt, where
from flambeau.kernels.language.vecmath.exponentials import LN2, LOG2_E, exp_rest, exp_split, scale
from flambeau.kernels.language.vecmath.logarithms import log_split
from flambeau.kernels.language.vecmath.machine import DOUBLE, SINGLE, bits, cast, fma, format_of, function, limits, rest_of_product

# log(1 + f) = 2s + s z (2/3 + z (...)) with s = f / (2 + f), z = s^2
ATANH = (
    0.4000000000000225, 0.2857142857010153, 0.22222222519626939, 0.18181784389467812, 0.1538675641777777, 0.13256837164767615,
    0.13196160018452896,
)  # fmt: skip
# log(1 + f) = f - f^2 (1/2 - f (...))
LOG = (
    0.3333333389065165, -0.24999997075808977, 0.19999911419582228, -0.1666685526376243, 0.14290170028411098, -0.1249827996103778,
    0.11014834615555527, -0.09924627243603949, 0.09988351534590309, -0.09862733546756314, 0.05386658270749924,
)  # fmt: skip


@function
def pow(x, y):
    """x^y = e^(y log|x|), and C99's special cases. (1.1, 1 ulp)"""
    return pow_edges(x, y, pow_double(abs(x), y) if format_of(x) is DOUBLE else pow_single(abs(x), y))


def pow_single(a, y):
    """2^(y log2 a), the logarithm (to 2^-35) and the product in double."""
    k, f = log_split(a)
    f = cast(f, "f64")
    log2 = cast(k, "f64") + (f - f * f * (0.5 - f * polynomial(f, LOG))) * LOG2_E
    plain = (a > 0) & (a < inf)
    log2 = where(plain, log2, cast(where(eq(a, 0), -inf, a), "f64"))
    e = where(eq(a, 1), 0, cast(y, "f64") * log2)  # 1^inf is 1
    n = (e + DOUBLE.magic) - DOUBLE.magic
    r = cast((e - n) * LN2, "f32")
    return limits(cast(e, "f32"), -151, 0, 129, inf, scale(1 + exp_rest(r, r), cast(n, "f32") + SINGLE.magic))


def pow_double(a, y):
    """e^(y log a) with log a to 2^-65: each step has a high and a low part."""
    k, f = log_split(a)
    d = 2 + f
    d_lo = f - (d - 2)
    inverse = 1 / d
    s = f * inverse
    p = s * d
    s_lo = inverse * (((f - p) - rest_of_product(s, d, p)) - s * d_lo)
    z = s * s
    z_lo = rest_of_product(s, s, z) + 2 * s * s_lo
    w = polynomial(z, ATANH)
    two_thirds, rest = 0.6666666666666666, 3.700743415417188e-17
    c = fma(z, w, two_thirds)
    c_lo = fma(z, w, two_thirds - c) + rest
    v = z * c
    v_lo = rest_of_product(z, c, v) + fma(z, c_lo, z_lo * c)
    u = s * v
    u_lo = rest_of_product(s, v, u) + fma(s, v_lo, s_lo * v)
    m = 2 * s + u
    m_lo = ((2 * s - m) + u) + (2 * s_lo + u_lo)
    n = k * 0.6931471805601177
    log = n + m
    log_lo = ((n - log) + m) + (m_lo + k * -1.7239444525614835e-13)
    e = y * log
    e_lo = rest_of_product(y, log, e) + y * log_lo
    # 1^inf is 1; 0 and infinity have infinite logarithms.
    plain = (a > 0) & (a < inf) & ne(a, 1)
    e = where(plain, e, where(eq(a, 1), 0, y * where(eq(a, 0), -inf, a)))
    t, hi, lo = exp_split(e, where(plain, e_lo, 0))
    return limits(e, -746, 0, 712, inf, scale(1 + (hi + lo), t))


def pow_edges(x, y, r):
    """The cases of C99 F.9.4.4, given r = |x|^y: odd and other integers, negative bases, the ones."""
    whole = eq(rint(y), y)
    odd = whole & ne(rint(0.5 * y), 0.5 * y)
    r = where(odd, copysign(r, x), r)
    r = where((x < 0) & (x > -inf) & ~whole, nan, r)
    return where(eq(x, 1) | eq(y, 0), 1, r)


@function
def hypot(x, y):
    """sqrt(x^2 + y^2), scaled by a power of two against overflow; infinity beats NaN. (1.2, 1.2 ulp)"""
    F = format_of(x)
    a, b = abs(x), abs(y)
    s = where(a + b > F(2.0**60, 2.0**500), F(2.0**-70, 2.0**-600), 1)
    s = where(a + b < F(2.0**-50, 2.0**-400), F(2.0**90, 2.0**600), s)
    r = sqrt(fma(a * s, a * s, b * s * (b * s))) / s
    infinite = F(0x7F800000, 0x7FF0000000000000)  # asked of numbers instead of bits, GCC 13 gets it wrong where the other is NaN
    return where(eq(bits(a), infinite) | eq(bits(b), infinite), inf, r)


@function
def rsqrt(x):
    """1 / sqrt x. (1.5, 1.5 ulp)"""
    return 1 / sqrt(x)
