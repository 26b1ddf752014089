"""Functions of the gamma family whose series take as many terms as their arguments ask for: loops over whole arrays.

All of them compute in float64, whatever dtype comes in and goes out.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from flambeau.kernels import arrays
from flambeau.ops.declare import OPS, no_derivative, on_arrays
from flambeau.ops.shape_rules import broadcast, like_input

DOUBLE = np.dtype(np.float64)
series = functools.partial(on_arrays, public=False, method=False, promote=("input", "other"), rule="float")


def in_double(*operands):
    """(the operands broadcast and in float64, memory for the result)."""
    given = [a for a in operands if hasattr(a, "dtype")]
    xp = arrays.module_of(given[0])
    wide = [arrays.cast(a, DOUBLE) if hasattr(a, "dtype") else xp.asarray(float(a)) for a in operands]
    return xp, arrays.empty_pointwise(given, given[0].dtype), xp.broadcast_arrays(*wide)


def rounded(out, value):
    """Doubles as the elements of a result."""
    arrays.write(out, arrays.module_of(out).asarray(value))
    return out


# -- incomplete gamma functions ----------------------------------------------------------------------------------------

EPSILON = 2.0**-54
MOST_TERMS = 1_000_000  # of the order of sqrt(a) are needed


@series(name="_igamma")
def gamma_p(input, other):
    """P(a, x), the integral of t^(a - 1) exp(-t) from 0 to x over the one to infinity."""
    return _incomplete_gamma(input, other, upper=False)


@series(name="_igammac")
def gamma_q(input, other):
    """Q(a, x) = 1 - P(a, x)."""
    return _incomplete_gamma(input, other, upper=True)


gamma_p.meta(broadcast)
gamma_q.meta(broadcast)
gamma_p.derivative(input=lambda grad: no_derivative("igamma", "input"), other=lambda grad, input, other: grad * _density(input, other))
gamma_q.derivative(input=lambda grad: no_derivative("igammac", "input"), other=lambda grad, input, other: -grad * _density(input, other))


def _density(a, x):
    """x^(a - 1) exp(-x) / gamma(a), with operations."""
    return ((a - 1) * x.log() - x - a.lgamma()).exp()


def _incomplete_gamma(a, x, upper: bool):
    xp, out, (a, x) = in_double(a, x)
    with np.errstate(all="ignore"):
        usual = (a > 0) & (x > 0) & xp.isfinite(a) & xp.isfinite(x)
        safe_a, safe_x = xp.where(usual, a, 1.0), xp.where(usual, x, 1.0)
        factor = _power_over_gamma(xp, safe_a, safe_x)
        by_series = safe_x < safe_a + 1  # where the series converges fast, and P is not near 1
        lower = factor * _series(xp, safe_a, xp.where(by_series, safe_x, 0.0))
        rest = factor * safe_a * _continued_fraction(xp, safe_a, xp.where(by_series, safe_a + 2, safe_x))
        value = xp.where(by_series, 1 - lower, rest) if upper else xp.where(by_series, lower, 1 - rest)
        edge = _edges(xp, a, x)
        value = xp.where(usual, value, 1 - edge if upper else edge)
    return rounded(out, value)


def _edges(xp, a, x):
    """P where an argument is zero, infinite, negative or NaN."""
    value = xp.where(xp.isinf(x) | (a == 0), 1.0, 0.0)  # all of it lies below infinity; for a = 0, at zero
    undefined = (a < 0) | (x < 0) | xp.isnan(a) | xp.isnan(x) | ((a == 0) & (x == 0)) | (xp.isinf(a) & xp.isinf(x))
    return xp.where(undefined, xp.nan, value)


def _power_over_gamma(xp, a, x):
    """x^a exp(-x) / gamma(a + 1).

    For large a, three large logarithms would nearly cancel: Stirling's formula takes them together, a (log(x / a) - (x - a) / a).
    """
    log_gamma = arrays.run(OPS["lgamma"].kernel, (xp.asarray(a + 1),), (), DOUBLE, DOUBLE)
    direct = xp.exp(a * xp.log(x) - x - log_gamma)
    excess = (x - a) / a
    inverse = 1 / a
    correction = inverse * (1 / 12 - inverse**2 * (1 / 360 - inverse**2 * (1 / 1260 - inverse**2 / 1680)))
    together = xp.exp(a * (xp.log1p(excess) - excess) - correction) / xp.sqrt(2 * math.pi * a)
    return xp.where(a < 20, direct, together)


def _series(xp, a, x):
    """1 + x / (a + 1) + x^2 / ((a + 1) (a + 2)) + ..."""
    total, term, n = xp.ones_like(a), xp.ones_like(a), a
    for _ in range(MOST_TERMS):
        n = n + 1
        term = term * (x / n)
        total = total + term
        if not (term > EPSILON * total).any():
            break
    return total


def _continued_fraction(xp, a, x):
    """exp(x) x^-a times the integral from x to infinity, by Lentz's method: 1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - ...))."""
    b = x + 1 - a
    c = xp.full_like(a, 1e300)
    d = 1 / b
    total = d
    for n in range(1, MOST_TERMS):
        weight = n * (a - n)
        b = b + 2
        d = 1 / (b + weight * d)
        c = b + weight / c
        step = c * d
        total = total * step
        if not (xp.abs(step - 1) > 4 * EPSILON).any():
            break
    return total


# -- zeta and polygamma ------------------------------------------------------------------------------------------------

# B_2j / (2j)!, of the Euler-Maclaurin formula
BERNOULLI = (
    1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600,
    -3617 / 10670622842880000, 43867 / 5109094217170944000, -174611 / 802857662698291200000,
    77683 / 14101100039391805440000,
)  # fmt: skip


LOWEST = -1e6  # below, the sum would take longer than anybody waits: NaN


@series(name="special.zeta", public=True)
def hurwitz_zeta(input, other):
    """Hurwitz's zeta function: the sum of (other + k) ** -input over k = 0, 1, 2, ..."""
    xp, out, (s, q) = in_double(input, other)
    return rounded(out, _zeta(xp, s, q))


hurwitz_zeta.meta(broadcast)
hurwitz_zeta.derivative(
    input=lambda grad: no_derivative("zeta", "input"),
    other=lambda grad, input, other: grad * -input * hurwitz_zeta(input + 1, other),
)


def _zeta(xp, s, q):
    """The first terms one by one, until q + k is beyond 10, and the Euler-Maclaurin formula for the rest."""
    with np.errstate(all="ignore"):
        total, at = xp.zeros_like(q), q
        while True:
            goes_on = (at < 10) & (at > LOWEST)
            if not goes_on.any():
                break
            total = xp.where(goes_on, total + at**-s, total)
            at = xp.where(goes_on, at + 1, at)
        power = at**-s
        rest = at * power / (s - 1) + power / 2
        factor = s * power / at
        for j, bernoulli in enumerate(BERNOULLI):
            rest = rest + factor * bernoulli
            factor = factor * (s + (2 * j + 1)) * (s + (2 * j + 2)) / (at * at)
        value = xp.where(q > LOWEST, total + xp.where(power == 0, 0.0, rest), xp.nan)
        whole_q, whole_s = q == xp.floor(q), s == xp.floor(s)
        value = xp.where((q <= 0) & ~whole_s, xp.nan, value)  # a root of a negative number
        value = xp.where((q <= 0) & whole_q, xp.inf, value)
        value = xp.where(s == 1, xp.inf, value)
        return xp.where((s < 1) | xp.isnan(s) | xp.isnan(q), xp.nan, value)


@series(name="_polygamma", promote=("input",))
def polygamma_series(input, n):
    """The n-th derivative of digamma for n > 1: (-1)^(n + 1) n! zeta(n + 1, x)."""
    xp, out, (x,) = in_double(input)
    return rounded(out, (1.0 if n % 2 else -1.0) * math.gamma(n + 1) * _zeta(xp, xp.asarray(n + 1.0), x))


polygamma_series.meta(like_input)
polygamma_series.derivative(input=lambda grad, input, n: grad * polygamma_series(input, n + 1))
