"""Sine, cosine, tangent: x = q pi/2 + r + lo with |r| <= pi/4, then a polynomial in r. And their inverses.

Note [huge angles]. A double beyond 2e8 needs many more digits of pi, which is libm's trade (`unless_huge`). A call would end the
vectorisation, but GCC calls a function with the attribute `simd` for a whole vector at a time: it compiles a version that walks the
lanes, for 1 ns per element. clang does as much unasked.
"""

from __future__ import annotations

from flambeau.kernels.language import expr as e
from flambeau.kernels.language.expr import copysign, eq, polynomial, sqrt, where
from flambeau.kernels.language.vecmath.machine import DOUBLE, bits, fma, format_of, from_bits, function, near_forms, pick
from flambeau.kernels.language.vecmath.quarters import SMALL_ANGLE, reduce

LIBM = ("sin", "cos", "tan")
e.ARITY |= {f"huge_{name}": 2 for name in LIBM}


def is_small(x):
    """Whether few digits of pi will do."""
    return abs(x) < format_of(x)(SMALL_ANGLE, 2e8)


@near_forms(is_small)
@function
def sin(x, near=False):
    """The sine. (1.5, 0.9 ulp)"""
    return unless_huge("sin", x, own_if_tiny(x, sin_shifted(x, 0, near)), near)


@near_forms(is_small)
@function
def cos(x, near=False):
    """The cosine. (1.5, 0.9 ulp)"""
    return unless_huge("cos", x, sin_shifted(x, 1, near), near)


@near_forms(is_small)
@function
def tan(x, near=False):
    """The tangent. (3.3, 2.2 ulp)"""
    return unless_huge("tan", x, own_if_tiny(x, tan_reduced(x, near)), near)


@function
def asin(x):
    """asin t = t + t z S(z) with z = t^2 <= 1/4. If a = |x| > 1/2, t = sqrt((1 - a) / 2) and asin a = pi/2 - 2 asin t. (2, 2 ulp)"""
    pi, pi_lo = pi_parts(x)
    a = abs(x)
    t, rest = asin_split(a)
    return copysign(where(a > 0.5, (pi / 2 - 2 * t) - (2 * rest - pi_lo / 2), t + rest), x)


@function
def acos(x):
    """pi/2 - asin x, or 2 asin t. (1.4, 1.4 ulp)"""
    pi, pi_lo = pi_parts(x)
    a = abs(x)
    t, rest = asin_split(a)
    outer = where(x > 0, 2 * (t + rest), pi - (2 * (t + rest) - pi_lo))
    return where(a > 0.5, outer, pi / 2 - (copysign(t + rest, x) - pi_lo / 2))


@function
def atan(x):
    """The angle whose tangent is x. (1.9, 1.9 ulp)"""
    return copysign(turned(abs(x), e.const(1, x.kind)), x)


@function
def atan2(y, x):
    """The angle of the point (x, y). Equal sizes, (0, 0) and (inf, inf) among them, become (1, 0) or (1, 1). (1.9, 1.9 ulp)"""
    pi, pi_lo = pi_parts(x)
    n, d = abs(y), abs(x)
    same = eq(n, d)
    r = angle(where(same, where(n > 0, 1, 0), n), where(same, 1, d))
    negative = bits(x) >> (format_of(x).bits - 1)
    return copysign(pick(negative, pi - (r - pi_lo), r), y)


# -- near zero -----------------------------------------------------------------------------------------------------------

SIN_SINGLE = (-0.16666655, 0.008332188, -0.00019518066)
SIN_DOUBLE = (
    -0.1666666666666663, 0.00833333333332202, -0.00019841269829503765, 2.755731358974593e-06, -2.505074254603292e-08,
    1.5895914181512471e-10,
)  # fmt: skip
COS_SINGLE = (0.041666646, -0.001388731, 2.4432333e-05)
COS_DOUBLE = (
    0.041666666666666595, -0.0013888888888872897, 2.480158728874918e-05, -2.755731414875462e-07, 2.0875696575485586e-09,
    -1.1358310079094088e-11,
)  # fmt: skip


def sin_small(r, lo):
    """sin(r + lo) for |r| <= pi/4."""
    z = r * r
    if lo is None:
        return r + r * z * polynomial(z, SIN_SINGLE)
    return r + (lo + r * z * polynomial(z, SIN_DOUBLE))


def cos_small(r, lo):
    """cos(r + lo) for |r| <= pi/4."""
    z = r * r
    if lo is None:
        return 1 + fma(z * z, polynomial(z, COS_SINGLE), -0.5 * z)
    w = 1 - 0.5 * z
    return w + (((1 - w) - 0.5 * z) + fma(z * z, polynomial(z, COS_DOUBLE), -r * lo))


def sin_shifted(x, quarters: int, near=False):
    """sin(x + quarters pi/2)."""
    q, r, lo = reduce(x, near)
    q = q + quarters
    value = pick(q, cos_small(r, lo), sin_small(r, lo))
    return from_bits(bits(value) ^ ((q & 2) << (format_of(x).bits - 2)))


def tan_reduced(x, near=False):
    """tan x = sin / cos, or -cos / sin in every other quarter."""
    q, r, lo = reduce(x, near)
    s, c = sin_small(r, lo), cos_small(r, lo)
    return from_bits(bits(pick(q, c, s) / pick(q, s, c)) ^ (q << (format_of(x).bits - 1)))


def own_if_tiny(x, r):
    """The tiny are their own sine and tangent, which keeps the sign of zero."""
    return where(abs(x) < format_of(x)(2.0**-13, 2.0**-27), x, r)


def unless_huge(name: str, x, r, near):
    """r, or for a huge double what libm says. Note [huge angles]"""
    return e.node(f"huge_{name}", x, r) if format_of(x) is DOUBLE and not near else r


# -- inverses ------------------------------------------------------------------------------------------------------------

ATAN_SINGLE = (-0.33333316, 0.19998528, -0.14244391, 0.10599168, -0.060900465)
ATAN_DOUBLE = (
    -0.333333333333332, 0.19999999999953202, -0.14285714280161893, 0.11111110781914081, -0.09090897718097064, 0.07692059586283623,
    -0.06663097671857399, 0.058478478495720486, -0.05039137795742433, 0.0380607753755941, -0.01790351716493766,
)  # fmt: skip
ASIN_SINGLE = (0.16666752, 0.074953094, 0.045469135, 0.024184939, 0.04215787)
ASIN_DOUBLE = (
    0.16666666666665408, 0.07500000000336965, 0.04464285682836556, 0.030381959135545103, 0.022371758082349927, 0.017359704307933464,
    0.013885239768341048, 0.012169184378465444, 0.006528089740209243, 0.0195279599606276, -0.016223784944273227, 0.03191195603877054,
)  # fmt: skip


def pi_parts(x):
    """pi rounded, and the rest."""
    F = format_of(x)
    return F(3.1415927410125732, 3.141592653589793), F(-8.742278e-08, 1.2246467991473532e-16)


def angle(n, d):
    """The angle in [0, pi/2] of the point (d, n), both >= 0."""
    F = format_of(n)
    up = F(2.0**30, 2.0**100)  # away from infinity and from subnormals
    scale = where(n + d < F(2.0**-90, 2.0**-900), up, where(n + d > F(2.0**120, 2.0**1000), 1 / up, 1))
    return turned(n * scale, d * scale)


def turned(n, d):
    """The same for a point whose coordinates are neither huge nor tiny. One division turns it by 0, 45 or 90 degrees: |t| <= tan(pi/8)."""
    F = format_of(n)
    pi, pi_lo = pi_parts(n)
    steep, middle = n > 2.414213562373095 * d, n > 0.41421356237309503 * d
    t = where(steep, -d, where(middle, n - d, n)) / where(steep, n, where(middle, n + d, d))
    z = t * t
    turn = where(steep, pi / 2, where(middle, pi / 4, 0))
    return turn + (t + fma(t * z, polynomial(z, F(ATAN_SINGLE, ATAN_DOUBLE)), turn * (pi_lo / pi)))


def asin_split(a):
    """(t, t z S(z))."""
    z = where(a > 0.5, 0.5 * (1 - a), a * a)
    t = where(a > 0.5, sqrt(z), a)
    return t, t * z * polynomial(z, format_of(a)(ASIN_SINGLE, ASIN_DOUBLE))
