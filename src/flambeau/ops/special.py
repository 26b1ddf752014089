"""Special functions around the error function, the normal distribution and the gamma function."""

from __future__ import annotations

import functools
import math

from flambeau import dtypes
from flambeau.kernels.language import expr as e
from flambeau.ops.declare import choice, composite, pointwise
from flambeau.ops.gamma_series import gamma_p, gamma_q, polygamma_series
from flambeau.ops.nodes import unary
from flambeau.ops.promotion import is_tensor

function = functools.partial(unary, rule="float", inplace=True, complex=False)


def special(name: str, **options):
    """A function of real numbers that is public as special.<name> only."""
    return pointwise(name=f"special.{name}", method=False, rule="float", complex=False, **options)


# -- x log y -----------------------------------------------------------------------------------------------------------


def _times_log(log, input, other):
    """input times a logarithm of other, 0 where input is 0."""
    return e.where(e.isnan(other), math.nan, e.where(e.eq(input, 0), 0, input * log(other)))


@pointwise(rule="float", inplace=True, complex=False, number_first=True, aliases=("special.xlogy",))
def xlogy(input, other):
    """input * log(other), 0 where input is 0 (unless other is NaN)."""
    return _times_log(e.log, input, other)


@special("xlog1py", number_first=True)
def xlog1py(input, other):
    """input * log(1 + other), 0 where input is 0 (unless other is NaN)."""
    return _times_log(e.log1p, input, other)


xlogy.derivative(
    input=lambda grad, input, other: e.where(e.eq(input, 0) & (other <= 0), 0, grad * e.log(other)),
    other=lambda grad, input, other: grad * (input / other),
)
xlog1py.derivative(
    input=lambda grad, input, other: e.where(e.eq(input, 0) & (other <= -1), 0, grad * e.log1p(other)),
    other=lambda grad, input, other: grad * (input / (other + 1)),
)


@special("entr")
def entr(input):
    """-x log(x): the entropy one outcome of probability x adds. 0 at zero, -inf below."""
    not_positive = e.where(e.eq(input, 0), 0, e.where(e.isnan(input), input, -math.inf))
    return e.where(input > 0, -input * e.log(input), not_positive)


entr.derivative(input=lambda grad, input: grad * -(1 + e.log(input)))


@pointwise(public=False, method=False, rule="float", complex=False)
def _logit(input):
    """log(x / (1 - x))."""
    return e.log(input / (1 - input))


_logit.derivative(input=lambda grad, input: e.where((input < 0) | (input > 1), math.nan, grad / (input * (1 - input))))


@pointwise(public=False, method=False, shown="logit", rule="float", complex=False)
def _logit_within(input, eps=0.0):
    """The same of x moved into eps ... 1 - eps."""
    inside = e.where(input < eps, eps, e.where(input > 1 - eps, 1 - eps, input))
    return e.log(inside / (1 - inside))


_logit_within.derivative(input=lambda grad, input, eps: e.where((input < eps) | (input > 1 - eps), 0, grad / (input * (1 - input))))


@choice(inplace=True, aliases=("special.logit",))
def logit(input, eps=None):
    """log(x / (1 - x)), the inverse of the sigmoid; with eps, x is moved into eps ... 1 - eps first."""
    return (_logit, input) if eps is None else (_logit_within, input, eps)


# -- the error function and the normal distribution --------------------------------------------------------------------

erf = function("erf", "2 / sqrt(pi) times the integral of exp(-t^2) from 0 to input.", aliases=("special.erf",))
erfc = function("erfc", "1 - erf(input), exact where that is small.", aliases=("special.erfc",))
erfinv = function("erfinv", "The number whose erf is input.", aliases=("special.erfinv",), autocast="cuda float32")

# (1 + 2 x) exp(x^2) erfc(x) for x >= 0 in t = (x - 3) / (x + 3): Chebyshev coefficients, computed in 40 digits
ERFCX = (
    1.17756257419656, 0.005353904539615676, -0.09377550342284209, 0.05436652555744322, -0.018976596707845208, 0.004453426061462712,
    -0.0006335531710553147, 1.76617195231716e-05, 1.28415328640567e-05, -2.007228565906e-06, -1.807522790415e-07, 7.54982834383e-08,
    1.8856685238e-09, -2.6995190498e-09, -1.46007912e-11, 1.036160745e-10, 1.475716e-12, -4.2773401e-12, -2.079225e-13, 1.81345e-13,
    1.97343e-14, -7.2879e-15, -1.517e-15, 2.351e-16, 1.001e-16,
)  # fmt: skip


@special("erfcx")
def erfcx(input):
    """exp(x^2) erfc(x), which falls as 1 / x while erfc itself is soon too small to be written down."""
    size = abs(input)
    # 1 - 6 / (x + 3) and not (x - 3) / (x + 3), which is NaN at infinity.
    right = e.chebyshev(1 - 6 / (size + 3), ERFCX) / (1 + 2 * size)
    return e.where(input < 0, 2 * e.exp(input * input) - right, right)


erfcx.derivative(input=lambda grad, input, result: grad * (2 * input * result - 2 / math.sqrt(math.pi)))


@special("ndtr")
def ndtr(input):
    """The probability that a standard normal variable is below x."""
    return 0.5 * e.erfc(input * -math.sqrt(0.5))


ndtr.derivative(input=lambda grad, input: grad * (e.exp(-0.5 * (input * input)) * (1 / math.sqrt(2 * math.pi))))


@special("log_ndtr")
def log_ndtr(input):
    """log(ndtr(x)), exact in the left tail too, where ndtr itself vanishes."""
    t = input * math.sqrt(0.5)
    return e.where(input < -1, e.log(0.5 * erfcx.forward(-t)) - t * t, e.log1p(-0.5 * e.erfc(t)))


log_ndtr.derivative(input=lambda grad, input: grad * (math.sqrt(2 / math.pi) / erfcx.forward(input * -math.sqrt(0.5))))

# r (r - log(r) / r - x) for the quantile -x of a tail p, as a function of 1 / r, where r = sqrt(-2 log p):
# for r up to 8, and for r from 8 to 40
NDTRI_NEAR = (
    1.0076518322983208, 0.0484560072772008, -0.0003434412504128023, -7.88878347148412e-05, 2.26376167551103e-05, -4.8242805711477e-06,
    9.172602291026e-07, -1.674894237552e-07, 3.07656202976e-08, -5.8245196049e-09, 1.143205924e-09, -2.315752089e-10, 4.80727326e-11,
    -1.01705421e-11, 2.1855841e-12, -4.761232e-13, 1.050054e-13, -2.3417e-14, 5.2746e-15, -1.1987e-15, 2.746e-16,
)  # fmt: skip
NDTRI_FAR = (
    0.9403940828842694, 0.01797714885093382, 0.0007204861229618141, -0.00015515924440180946, 2.766990183752755e-05, -5.28718633207615e-06,
    1.12579754862152e-06, -2.6313044194755e-07, 6.598571696793e-08, -1.74544749892e-08, 4.81343722631e-09, -1.37238439938e-09,
    4.0207651832e-10, -1.2049092787e-10, 3.680244733e-11, -1.142542383e-11, 3.59733964e-12, -1.14663894e-12, 3.6946198e-13, -1.201933e-13,
    3.94378e-14, -1.304035e-14, 4.34197e-15, -1.45488e-15,
)  # fmt: skip


def _tail_quantile(p):
    """The x above which a standard normal variable lies with the small probability p."""
    r = e.sqrt(-2 * e.log(p))
    u = 1 / r
    near = e.chebyshev((u - (NEAR_LOW + NEAR_HIGH) / 2) / ((NEAR_HIGH - NEAR_LOW) / 2), NDTRI_NEAR)
    far = e.chebyshev((u - (FAR_LOW + NEAR_LOW) / 2) / ((NEAR_LOW - FAR_LOW) / 2), NDTRI_FAR)
    return r - (e.log(r) + e.where(r < 8, near, far)) * u


FAR_LOW, NEAR_LOW, NEAR_HIGH = 1 / 40, 1 / 8, 1 / 2.7  # bounds of 1 / r


@special("ndtri")
def ndtri(input):
    """The x below which a standard normal variable lies with probability p: the inverse of ndtr."""
    rest = 1 - input
    small = e.where(input < 0.5, input, rest)
    tail = _tail_quantile(small)
    inside = e.where(small > 0.02, e.erfinv(2 * input - 1) * math.sqrt(2), e.where(input < 0.5, -tail, tail))
    edge = e.where(e.eq(input, 0), -math.inf, e.where(e.eq(input, 1), math.inf, math.nan))
    return e.where((input > 0) & (input < 1), inside, edge)


ndtri.derivative(input=lambda grad, result: grad * (math.sqrt(2 * math.pi) * e.exp(0.5 * (result * result))))

# -- the gamma function ------------------------------------------------------------------------------------------------

lgamma = function("lgamma", "The logarithm of the size of the gamma function.", aliases=("special.gammaln",))
digamma = function("digamma", "The derivative of lgamma.", aliases=("special.digamma", "special.psi"))


@pointwise(public=False, method=False, shown="polygamma", rule="float", complex=False)
def _trigamma(input):
    """The derivative of digamma: reflected at 1/2, ten steps up by the recurrence, then the asymptotic series."""
    reflects = input < 0.5
    y = e.where(reflects, 1 - input, input)
    sum = e.const(0.0)
    for k in range(10):
        sum = sum + 1 / ((y + k) * (y + k))
    w = 1 / (y + 10)
    z = w * w
    series = e.polynomial(z, (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6))
    right = sum + (w + z * (0.5 + w * series))
    sine = e.sin(math.pi * input) * (1 / math.pi)
    return e.where(reflects, 1 / (sine * sine) - right, right)


digamma.derivative(input=lambda grad, input: grad * _trigamma.forward(input))


@choice(method=False, number_first=True, aliases=("special.polygamma",))
def polygamma(n, input):
    """The n-th derivative of digamma."""
    if n < 0:
        raise RuntimeError(f"polygamma(n, x) does not support negative n, found n = {n}")
    return (digamma, input) if n == 0 else (_trigamma, input) if n == 1 else (polygamma_series, input, n)


@choice(public=False, name="Tensor.polygamma", inplace=True)
def polygamma_of(input, n):
    """The n-th derivative of digamma."""
    return polygamma.forward(n, input)


@composite(inplace=True, out=True, aliases=("special.multigammaln",))
def mvlgamma(input, p):
    """The logarithm of the multivariate gamma function of dimension p.

    p (p - 1) / 4 log(pi) + the sum over j < p of lgamma(input - j / 2)
    """
    if p < 1:
        raise RuntimeError(f"multigammaln: p has to be 1 or more, found {p}")
    lower = input.new_tensor([-j / 2 for j in reversed(range(p))], dtype=None if input.is_floating_point() else dtypes.get_default_dtype())
    return lgamma(input.unsqueeze(-1) + lower).sum(-1) + p * (p - 1) / 4 * math.log(math.pi)


@choice(inplace=True, aliases=("special.gammainc",))
def igamma(input, other):
    """The lower incomplete gamma function of `input` at `other`, as a fraction of the whole: it goes from 0 to 1."""
    return gamma_p, input, tensor_only("igamma", other)


@choice(inplace=True, aliases=("special.gammaincc",))
def igammac(input, other):
    """The upper incomplete gamma function of `input` at `other`, as a fraction of the whole: 1 - igamma."""
    return gamma_q, input, tensor_only("igammac", other)


def tensor_only(name: str, other):
    """The second argument, which must not be a number here."""
    if not is_tensor(other):
        raise TypeError(f"{name}(): argument 'other' (position 2) must be Tensor, not {type(other).__name__}")
    return other
