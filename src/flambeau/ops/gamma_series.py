"""Functions of the gamma family whose series take as many terms as their arguments ask for: loops over whole arrays.

All of them compute in float64, whatever dtype comes in and goes out.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import numpy as np

from flambeau.kernels import arrays
from flambeau.ops import specs
from flambeau.ops.declare import OPS, no_derivative, on_arrays

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
MOST_TERMS = 1000  # some 250 are needed at most
LARGE = 20.0  # from this a on, Temme's expansion is as precise as doubles for 1/3 < x / a < 2.3
ORDERS, POWERS = 16, 32  # terms of that expansion: in 1 / a, and in eta, of which |eta| <= 1 counts


@series(name="_igamma", meta=specs.pointwise)
def gamma_p(input, other):
    """P(a, x), the integral of t^(a - 1) exp(-t) from 0 to x over the one to infinity."""
    return _incomplete_gamma(input, other, upper=False)


@series(name="_igammac", meta=specs.pointwise)
def gamma_q(input, other):
    """Q(a, x) = 1 - P(a, x)."""
    return _incomplete_gamma(input, other, upper=True)


gamma_p.derivative(input=lambda grad: no_derivative("igamma", "input"), other=lambda grad, input, other: grad * _density(input, other))
gamma_q.derivative(input=lambda grad: no_derivative("igammac", "input"), other=lambda grad, input, other: -grad * _density(input, other))


def _density(a, x):
    """x^(a - 1) exp(-x) / gamma(a), with operations."""
    return ((a - 1) * x.log() - x - a.lgamma()).exp()


def _incomplete_gamma(a, x, upper: bool):
    xp, out, (a, x) = in_double(a, x)
    with np.errstate(all="ignore"):
        edge = _edges(xp, a, x)
        value = 1 - edge if upper else edge
        usual = (a > 0) & (x > 0) & xp.isfinite(a) & xp.isfinite(x)
        excess = xp.where(usual, (x - a) / a, 0.0)
        half_square = _less_logarithm(xp, excess)  # eta^2 / 2
        alike = usual & (a >= LARGE) & (half_square <= 0.5)
        below = usual & ~alike & (x < a + 1)  # where the series converges fast, and P is not near 1
        above = usual & ~alike & ~below
        for chosen, found in ((alike, _uniform), (below, _by_series), (above, _by_fraction)):
            if chosen.any():
                value[chosen] = found(xp, a[chosen], x[chosen], excess[chosen], half_square[chosen], upper)
    return rounded(out, value)


def _by_series(xp, a, x, excess, half_square, upper: bool):
    lower = _power_over_gamma(xp, a, x, excess) * _series(xp, a, x)
    return 1 - lower if upper else lower


def _by_fraction(xp, a, x, excess, half_square, upper: bool):
    rest = _power_over_gamma(xp, a, x, excess) * a * _continued_fraction(xp, a, x)
    return rest if upper else 1 - rest


def _uniform(xp, a, x, excess, half_square, upper: bool):
    """P or Q for large a and any x of its size: erfc(-+eta sqrt(a / 2)) / 2 and a correction (Temme, 1979).

    The series would take sqrt(a) terms and more there. eta is the root of 2 (t - log(1 + t)) for t = x / a - 1, with its sign.
    """
    eta = xp.copysign(xp.sqrt(2 * half_square), excess)
    tail = arrays.run(OPS["erfc"].kernel, (xp.asarray((eta if upper else -eta) * xp.sqrt(a / 2)),), (), DOUBLE, DOUBLE)
    correction = xp.zeros_like(a)
    for coefficients in reversed(_temme()):
        order = xp.zeros_like(a)
        for c in reversed(coefficients):
            order = order * eta + c
        correction = correction / a + order
    correction = correction * xp.exp(-a * half_square) / xp.sqrt(2 * math.pi * a)
    return tail / 2 + correction if upper else tail / 2 - correction


@functools.lru_cache(None)
def _temme() -> list[list[float]]:
    """The coefficients of the correction, of a^-k eta^n in row k, column n.

    They follow from those of t = sum alpha_n eta^n, which eta (1 + t) = t dt/d eta determines. Rational numbers: in doubles their
    recurrences would lose all digits.
    """
    count = POWERS + 2 * ORDERS + 2
    alpha = [Fraction(1), Fraction(1)]  # of 1 + t
    for n in range(2, count + 1):
        known = sum((alpha[i] * (n + 1 - i) * alpha[n + 1 - i] for i in range(2, n)), Fraction(0))
        alpha.append((alpha[n - 1] - known) / (n + 1))
    first = [Fraction(-1, 3), *((n + 2) * alpha[n + 2] for n in range(1, count - 1))]
    rows, double_factorial = [first], 1
    for k in range(1, ORDERS):
        double_factorial *= 2 * k + 1
        stirling = (-1) ** k * double_factorial * alpha[2 * k + 1]
        rows.append([stirling * first[n] + (n + 2) * rows[-1][n + 2] for n in range(len(rows[-1]) - 2)])
    return [[float(c) for c in row[:POWERS]] for row in rows]


def _less_logarithm(xp, t):
    """t - log(1 + t), whose terms nearly cancel for small t: there by its series."""
    total = xp.zeros_like(t)
    for n in range(22, 1, -1):
        total = total * -t + 1 / n
    return xp.where(abs(t) < 0.15, total * t * t, t - xp.log1p(t))


def _edges(xp, a, x):
    """P where an argument is zero, infinite, negative or NaN."""
    value = xp.where(xp.isinf(x) | (a == 0), 1.0, 0.0)  # all of it lies below infinity; for a = 0, at zero
    undefined = (a < 0) | (x < 0) | xp.isnan(a) | xp.isnan(x) | ((a == 0) & (x == 0)) | (xp.isinf(a) & xp.isinf(x))
    return xp.where(undefined, xp.nan, value)


def _power_over_gamma(xp, a, x, excess):
    """x^a exp(-x) / gamma(a + 1), excess being (x - a) / a.

    For large a, three large logarithms would nearly cancel: Stirling's formula takes them together, a (log(x / a) - (x - a) / a).
    """
    log_gamma = arrays.run(OPS["lgamma"].kernel, (xp.asarray(a + 1),), (), DOUBLE, DOUBLE)
    direct = xp.exp(a * xp.log(x) - x - log_gamma)
    inverse = 1 / a
    correction = inverse * (1 / 12 - inverse**2 * (1 / 360 - inverse**2 * (1 / 1260 - inverse**2 / 1680)))
    together = xp.exp(a * (xp.log1p(excess) - excess) - correction) / xp.sqrt(2 * math.pi * a)
    return xp.where(a < LARGE, direct, together)


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


@series(name="special.zeta", public=True, meta=specs.pointwise)
def hurwitz_zeta(input, other):
    """Hurwitz's zeta function: the sum of (other + k) ** -input over k = 0, 1, 2, ..."""
    xp, out, (s, q) = in_double(input, other)
    return rounded(out, _zeta(xp, s, q))


hurwitz_zeta.derivative(
    input=lambda grad: no_derivative("zeta", "input"),
    other=lambda grad, input, other: grad * -input * hurwitz_zeta(input + 1, other),
)


def _zeta(xp, s, q):
    """Terms below zero are, but for their sign, those of two sums that begin above: (f + n)^-s for f in (0, 1), up to -q."""
    with np.errstate(all="ignore"):
        size, below, whole_s = abs(q), q <= 0, s == xp.floor(s)
        part = size - xp.floor(size)
        value = _zeta_above(xp, s, xp.where(below, 1 - part, q))
        if below.any():
            terms = _zeta_above(xp, s, part) - _zeta_above(xp, s, size + 1)
            value = xp.where(below, value + xp.where(s % 2 == 1, -terms, terms), value)
            value = xp.where(below & ~whole_s, xp.nan, value)  # a root of a negative number
            value = xp.where(below & (part == 0), xp.inf, value)
        value = xp.where(s == 1, xp.inf, value)
        return xp.where((s < 1) | xp.isnan(s) | xp.isnan(q), xp.nan, value)


def _zeta_above(xp, s, q):
    """For q > 0. The first terms one by one, until q + k is beyond 10, and the Euler-Maclaurin formula for the rest."""
    total, at = xp.zeros_like(q), q
    while (goes_on := at < 10).any():
        total = xp.where(goes_on, total + at**-s, total)
        at = xp.where(goes_on, at + 1, at)
    power = at**-s
    rest = at * power / (s - 1) + power / 2
    factor = s * power / at
    for j, bernoulli in enumerate(BERNOULLI):
        rest = rest + factor * bernoulli
        factor = factor * (s + (2 * j + 1)) * (s + (2 * j + 2)) / (at * at)
    return total + xp.where(power == 0, 0.0, rest)


@series(name="_polygamma", promote=("input",), meta=specs.like)
def polygamma_series(input, n):
    """The n-th derivative of digamma for n > 1: (-1)^(n + 1) n! zeta(n + 1, x)."""
    xp, out, (x,) = in_double(input)
    return rounded(out, (1.0 if n % 2 else -1.0) * math.gamma(n + 1) * _zeta(xp, xp.asarray(n + 1.0), x))


polygamma_series.derivative(input=lambda grad, input, n: grad * polygamma_series(input, n + 1))
