"""The error function erf x = 2 / sqrt(pi) times the integral of e^(-t^2) from 0 to x, its complement and its inverse."""

from __future__ import annotations

from math import inf, nan

from flambeau.kernels.language.expr import copysign, eq, polynomial, sqrt, where
from flambeau.kernels.language.vecmath.exponentials import LN2_HIGH, LN2_LOW, LOG2_E, REST_DOUBLE, exp, exp_short, exp_split, power, scale
from flambeau.kernels.language.vecmath.logarithms import log, log_short
from flambeau.kernels.language.vecmath.machine import DOUBLE, fma, format_of, function, in_short_double, upper_half

SMALL_DOUBLE = (
    0.12837916709551256, -0.37612638903183465, 0.11283791670924816, -0.026866170632716322, 0.005223977370332408,
    -0.0008548297524748163, 0.00012053324323886661, -1.4845583855143466e-05, 1.4723215353508247e-06,
)  # fmt: skip
RATIO_SINGLE = (
    (2.1875443, 0.3713446, 0.10250672, 0.0073824665, 0.00055190874, 3.9276183e-06),
    (1.9386607, 0.97531456, 0.22208959, 0.02918617, 0.002269579, 7.3343544e-05),
)  # fmt: skip
TAIL = (
    1.095995661000491, -0.976548729080882, 0.7732087022652362, -0.5408538313132353, 0.3308515878780741, -0.17401093723993785,
    0.07638151490772821, -0.0263700533400786, 0.006112055676400875, -0.0002809588696192047, -0.0004550528430054228,
    0.00017681285188205585, -3.6344082782255836e-06, -1.8861038082742995e-05, 4.692071105898432e-06, 1.424592347955333e-06,
    -8.416237404122511e-07, -7.612522599680286e-08, 1.1869622774733012e-07, 1.3257531356526545e-09, -1.1868943170685543e-08,
)  # fmt: skip
# For float32, to 2^-34: the tail, and to 2^-31: the inverse as y P(w) and P(sqrt w)
SHORT_TAIL = (
    1.0959956609679504, -0.9765487292612481, 0.773208709222198, -0.5408538181000129, 0.3308513580763136, -0.17401133738047,
    0.0763840836105511, -0.026364573072496414, 0.0061020404721572954, -0.00031282017040143656, -0.0004574606428196306,
    0.0002380175331472024, 6.23477177456585e-05,
)  # fmt: skip
SHORT_INVERSE_NEAR = (
    0.8862269258195956, 0.23201364443269631, 0.011549558644821266, -0.0023359175161659818, -0.00012649205279628066,
    4.492748227867556e-05, 3.1180132022876218e-06, -1.4364578222669996e-06, 4.4865394670523045e-08, 2.3721582184228784e-08,
    -3.21661518417889e-09, 1.3285983770370025e-10,
)  # fmt: skip
SHORT_INVERSE_FAR = (
    -0.17766670296689027, 1.4156671136054262, -0.6770319515485768, 0.4924649730136415, -0.20771376185182444, 0.05541837656761795,
    -0.009515382010545194, 0.001018541285099778, -6.152110569334352e-05, 1.5827624964962601e-06,
)  # fmt: skip
INVERSE_NEAR = (
    0.8862266888297744, 0.23202136496881096, 0.011509274944712359, -0.002256762085294263, -0.00020277437684529932,
    8.512076276961247e-05, -8.709445763880119e-06, 3.156322670200538e-07,
)  # fmt: skip
INVERSE_FAR = (-0.07720388515710226, -0.6781353523223245, 1.4742099190745581, -0.9550111005429447, 0.06814108319684604)
HALF_SQRT_PI = 0.886226925452758


@function
def erf(x):
    """In float32 |x| P(x^2) / Q(x^2) up to 3.95, beyond which erf is 1. (5.0, 2.3 ulp)"""
    a = abs(x)
    if format_of(x) is DOUBLE:
        return where(a < 0.5, erf_small(x), copysign(where(a > 6, 1, 1 - erfc_near(a)), x))
    over, under = (polynomial(x * x, c) for c in RATIO_SINGLE)
    r = a * over / under
    return copysign(where((a > 3.95) | (r > 1), 1, r), x)


def erfc_single(x):
    """The tail's formula for all x, in which the square of a float32 is exact."""
    a = abs(x)
    d = a + 4
    tail = where(a > 11, 0, exp_short(-a * a) * polynomial((a - 4) / d, SHORT_TAIL) / d)
    return where(x < 0, 2 - tail, tail)


@in_short_double(erfc_single)
def erfc(x):
    """1 - erf x. (0.5, 3.7 ulp)"""
    a = abs(x)
    tail = erfc_tail(a)
    return where(a < 0.5, 1 - erf_small(x), where(x < 0, 2 - tail, tail))


def erfinv_single(y):
    """A fit of enough digits in w = -log(1 - y^2) or its root."""
    a = abs(y)
    w = -log_short((1 - a) * (1 + a))
    x = where(w < 5, a * polynomial(w, SHORT_INVERSE_NEAR), polynomial(sqrt(w), SHORT_INVERSE_FAR))
    return copysign(where(a < 1, x, where(eq(a, 1), inf, nan)), y)


@in_short_double(erfinv_single)
def erfinv(y):
    """The x with erf x = y. (0.5, 3.6 ulp)

    A fit good to 2^-21 in w = -log(1 - y^2) or its root, then one Halley step (which cubes the error) on erf or, above 0.52, on erfc,
    because there 1 - |y| is exact.
    """
    a = abs(y)
    w = -log((1 - a) * (1 + a))
    v = sqrt(w)
    near = a * polynomial(w, INVERSE_NEAR)
    far = 1.0022599392791518 * v + polynomial(1 / v, INVERSE_FAR)
    x = where(w < 5, near, far)
    miss = where(a < 0.52, erf_small(x) - a, (1 - a) - erfc_tail(x))
    step = miss * HALF_SQRT_PI * exp(x * x)
    x = x - step / (1 + x * step)
    return copysign(where(a < 1, x, where(eq(a, 1), inf, nan)), y)


def erf_small(x):
    """erf x for |x| < 0.5, in float64."""
    return x + x * polynomial(x * x, SMALL_DOUBLE)


def erfc_near(a):
    """erfc a as a number to be taken from 1: the formula of erfc_tail without the digits that are lost there. For 0.49 < a <= 6."""
    inverse = 1 / (a + 4)
    t = a * a * -LOG2_E + DOUBLE.magic
    n = t - DOUBLE.magic
    r = fma(n, -LN2_LOW[1], fma(n, -LN2_HIGH[1], -(a * a)))
    return polynomial(r, (1, 1, *REST_DOUBLE)) * power(t) * (polynomial((a - 4) / (a + 4), TAIL) * inverse)


def erfc_tail(a):
    """erfc a = e^(-a^2) G(v) / d with d = a + 4 and v = (a - 4) / d, for a > 0.49.

    a^2 has a high and a low part, since its rounding error alone would be hundreds of ulp in the tail; the digits that d has lost come
    back by the derivative.
    """
    top = upper_half(a)
    t, hi, lo = exp_split(-top * top, (top - a) * (top + a))
    d = a + 4
    g = polynomial((d - 8) / d, TAIL) / d
    g = g + (a - (d - 4)) * (2 * a * g - 1.1283791670955126)
    return where(a > 28, 0, scale(g + g * (hi + lo), t))
