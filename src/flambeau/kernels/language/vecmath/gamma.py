"""The gamma function's logarithm and the derivative of that.

log gamma is libm's (see printing.py), but for float32 above 0, where nothing cancels."""

from __future__ import annotations

from math import inf, nan, pi

from flambeau.kernels.language.expr import eq, node, polynomial, rint, where
from flambeau.kernels.language.vecmath.logarithms import log, log_short
from flambeau.kernels.language.vecmath.machine import FUNCTIONS, Function, cast, fma, in_double, near_forms
from flambeau.kernels.language.vecmath.trigonometry import tan_reduced

# log gamma(1 + u) = u (u - 1) (...) for u from 0 to 2, to 2^-35
LOG_GAMMA = (
    0.5772156648886602, -0.24525136463757938, 0.1554340698613929, -0.11514259539047113, 0.09219671143544339, -0.07703919292159842,
    0.06549469081403253, -0.05486215211768723, 0.04329905098815272, -0.03056377129562695, 0.018344752095145217, -0.008947452497733589,
    0.003396754067022875, -0.0009562531414056984, 0.00018661219354955245, -2.2437822524370346e-05, 1.248582052587951e-06,
)  # fmt: skip


def is_positive(x):
    """Whether x is above 0 and finite."""
    return (x > 0) & (x < inf)


@near_forms(is_positive, ("f32",), "lgamma")
def lgamma_positive(x, near):
    """In double. Below 3 by a fit; above, Stirling's formula for x + 5 or, from 8 on, x.

    The fit is for 1 + u: below 1 that is x + 1, and gamma(x) = gamma(x + 1) / x. gamma(x + 5) is gamma(x) times x (x + 1) ... (x + 4).
    """
    a = cast(x, "f64")
    u = where(a < 1, a, a - 1)
    w = where(a < 8, a + 5, a)
    i = 1 / w
    series = i * stirling(i * i, (1 / 12, 1 / 360, 1 / 1260, 1 / 1680))
    large = (w - 0.5) * log_short(w) - w + (0.9189385332046728 + series)
    product = where(a < 1, a, where((a < 3) | (a >= 8), 1, a * (a + 1) * (a + 2) * (a + 3) * (a + 4)))
    return cast(where(a < 3, u * (u - 1) * polynomial(u, LOG_GAMMA), large) + (0 - log_short(product)), "f32")


def lgamma(x):
    """libm's where it must be."""
    return where(is_positive(x), node("lgamma_near", x), cast(node("lgamma", cast(x, "f64")), "f32"))


FUNCTIONS.append(Function("lgamma_f32", ("f32",), "f32", lgamma))


@in_double
def digamma(x):
    """psi(x) = gamma'(x) / gamma(x). (3e-15, or 4 ulp where psi is large)

    For negative x, psi(x) = psi(1 - x) - pi / tan(pi x). Below 10, psi(b) = psi(b + 10) - sum of 1 / (b + j), j < 10, and the terms j and
    9 - j pair up to (2b + 9) / (u + j (9 - j)), u = b (b + 9): one fraction D'(u) / D(u) of positive terms. Above, Stirling's series.
    """
    part = x - rint(x)
    reflected = where(x < 0, pi / tan_reduced(pi * part), 0)
    b = where(x < 0, 1 - x, x)
    u = b * (b + 9)
    fraction = polynomial(u, (40320, 24352, 3924, 240, 5)) / (u * (u + 8) * (u + 14) * (u + 18) * (u + 20))
    w = where(b < 10, b + 10, b)
    i = 1 / w
    z = i * i
    series = stirling(z, (1 / 12, 1 / 120, 1 / 252, 1 / 240, 1 / 132, 691 / 32760, 1 / 12))
    r = fma(-z, series, log(w) - 0.5 * i)
    r = where(b < 10, fma(-(2 * b + 9), fraction, r), r) - reflected
    return where((x < 0) & eq(part, 0), nan, r)


def stirling(z, coefficients):
    """c0 - z (c1 - z (c2 - ...)): the signs alternate."""
    first, *others = coefficients
    return first - z * stirling(z, others) if others else first
