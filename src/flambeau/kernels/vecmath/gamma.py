"""The logarithmic derivative of the gamma function. (log gamma itself is libm's, see printing.py.)"""

from __future__ import annotations

from math import nan, pi

from flambeau.kernels.expr import eq, polynomial, rint, where
from flambeau.kernels.vecmath.logarithms import log
from flambeau.kernels.vecmath.machine import fma, in_double
from flambeau.kernels.vecmath.trigonometry import tan_near


@in_double
def digamma(x):
    """psi(x) = gamma'(x) / gamma(x). (3e-15, or 4 ulp where psi is large)

    For negative x, psi(x) = psi(1 - x) - pi / tan(pi x). Below 10, psi(b) = psi(b + 10) - sum of 1 / (b + j), j < 10, and the terms j and
    9 - j pair up to (2b + 9) / (u + j (9 - j)), u = b (b + 9): one fraction D'(u) / D(u) of positive terms. Above, Stirling's series.
    """
    part = x - rint(x)
    reflected = where(x < 0, pi / tan_near(pi * part), 0)
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
