"""Distributions with a place and a width: normal, Laplace, Cauchy, Student's t, uniform, von Mises, generalized Pareto."""

from __future__ import annotations

import math

from flambeau import dtypes, modes
from flambeau.distributions import constraints
from flambeau.distributions.distribution import ExponentialFamily, Family
from flambeau.distributions.utils import op, standard_normal, uniform
from flambeau.ops.sampling import normal_around
from flambeau.tensor import Size, Tensor
from flambeau.tensor.making import factories

__all__ = ["Cauchy", "GeneralizedPareto", "Laplace", "Normal", "StudentT", "Uniform", "VonMises"]

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class Normal(Family, ExponentialFamily):
    """exp(-((x - loc) / scale)^2 / 2) / (scale sqrt(2 pi)): what many small causes add up to."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(self, loc, scale, validate_args=None):
        self._take(validate_args, loc=loc, scale=scale)

    mean = property(lambda self: self.loc)
    mode = mean
    stddev = property(lambda self: self.scale)
    variance = property(lambda self: self.stddev.pow(2))

    def sample(self, sample_shape=Size()):  # noqa: B008
        shape = self._extended_shape(sample_shape)
        with modes.no_grad():
            return normal_around(self.loc.expand(shape), self.scale.expand(shape))

    def rsample(self, sample_shape=Size()):  # noqa: B008
        shape = self._extended_shape(sample_shape)
        return self.loc + standard_normal(shape, self.loc.dtype, self.loc.device) * self.scale

    def log_prob(self, value):
        self._checked(value)
        log_scale = math.log(self.scale) if isinstance(self.scale, (int, float)) else self.scale.log()
        return -((value - self.loc) ** 2) / (2 * self.scale**2) - log_scale - HALF_LOG_2PI

    def cdf(self, value):
        self._checked(value)
        return 0.5 * (1 + ((value - self.loc) * self.scale.reciprocal() / math.sqrt(2)).erf())

    def icdf(self, value):
        return self.loc + self.scale * (2 * value - 1).erfinv() * math.sqrt(2)

    def entropy(self):
        return 0.5 + HALF_LOG_2PI + self.scale.log()

    @property
    def _natural_params(self):
        return self.loc / self.scale.pow(2), -0.5 * self.scale.pow(2).reciprocal()

    def _log_normalizer(self, x, y):
        return -0.25 * x.pow(2) / y + 0.5 * (-math.pi / y).log()


class Laplace(Family):
    """exp(-|x - loc| / scale) / (2 scale): two exponentials back to back."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc, scale, validate_args=None):
        self._take(validate_args, loc=loc, scale=scale)

    mean = property(lambda self: self.loc)
    mode = mean
    variance = property(lambda self: 2 * self.scale.pow(2))
    stddev = property(lambda self: 2**0.5 * self.scale)

    def rsample(self, sample_shape=Size()):  # noqa: B008
        eps = dtypes.finfo(self.loc.dtype).eps
        u = factories.empty(self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device).uniform_(eps - 1, 1)
        return self.loc - self.scale * u.sign() * (-u.abs()).log1p()

    def log_prob(self, value):
        self._checked(value)
        return -(2 * self.scale).log() - (value - self.loc).abs() / self.scale

    def cdf(self, value):
        self._checked(value)
        return 0.5 - 0.5 * (value - self.loc).sign() * (-(value - self.loc).abs() / self.scale).expm1()

    def icdf(self, value):
        term = value - 0.5
        return self.loc - self.scale * term.sign() * (-2 * term.abs()).log1p()

    def entropy(self):
        return 1 + (2 * self.scale).log()


class Cauchy(Family):
    """1 / (pi scale (1 + ((x - loc) / scale)^2)): so heavy at the ends that it has no mean."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc, scale, validate_args=None):
        self._take(validate_args, loc=loc, scale=scale)

    @property
    def mean(self):
        return factories.full(self._extended_shape(), math.nan, dtype=self.loc.dtype, device=self.loc.device)

    mode = property(lambda self: self.loc)

    @property
    def variance(self):
        return factories.full(self._extended_shape(), math.inf, dtype=self.loc.dtype, device=self.loc.device)

    def rsample(self, sample_shape=Size()):  # noqa: B008
        eps = factories.empty(self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device).cauchy_()
        return self.loc + eps * self.scale

    def log_prob(self, value):
        self._checked(value)
        return -math.log(math.pi) - self.scale.log() - ((value - self.loc) / self.scale).pow(2).log1p()

    def cdf(self, value):
        self._checked(value)
        return ((value - self.loc) / self.scale).atan() / math.pi + 0.5

    def icdf(self, value):
        return (math.pi * (value - 0.5)).tan() * self.scale + self.loc

    def entropy(self):
        return math.log(4 * math.pi) + self.scale.log()


class StudentT(Family):
    """A normal number over the root of a mean of `df` squared ones: what a mean looks like if its deviation is estimated."""

    arg_constraints = {"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, df, loc=0.0, scale=1.0, validate_args=None):
        from flambeau.distributions.positive import Chi2

        self._take(validate_args, df=df, loc=loc, scale=scale)
        self._chi2 = Chi2(self.df)

    def _expand_more(self, new, shape):
        new._chi2 = self._chi2.expand(shape)

    mean = property(lambda self: self.loc.clone().masked_fill(self.df <= 1, math.nan))
    mode = property(lambda self: self.loc)

    @property
    def variance(self):
        found = self.scale.pow(2) * self.df / (self.df - 2)
        return found.masked_fill(self.df <= 2, math.inf).masked_fill(self.df <= 1, math.nan)

    def rsample(self, sample_shape=Size()):  # noqa: B008
        x = standard_normal(self._extended_shape(sample_shape), self.df.dtype, self.df.device)
        z = self._chi2.rsample(sample_shape)
        return self.loc + self.scale * (x * (z / self.df).rsqrt())

    def log_prob(self, value):
        self._checked(value)
        y = (value - self.loc) / self.scale
        normalizer = (
            self.scale.log() + 0.5 * self.df.log() + 0.5 * math.log(math.pi) + (0.5 * self.df).lgamma() - (0.5 * (self.df + 1)).lgamma()
        )
        return -0.5 * (self.df + 1) * (y**2 / self.df).log1p() - normalizer

    def entropy(self):
        half = 0.5 * self.df
        log_beta = half.lgamma() + math.lgamma(0.5) - (0.5 * (self.df + 1)).lgamma()
        return self.scale.log() + 0.5 * (self.df + 1) * ((0.5 * (self.df + 1)).digamma() - half.digamma()) + 0.5 * self.df.log() + log_beta


class Uniform(Family):
    """1 / (high - low) between the two, and 0 elsewhere."""

    has_rsample = True

    @property
    def arg_constraints(self):  # type: ignore[override]
        return {"low": constraints.less_than(self.high), "high": constraints.greater_than(self.low)}

    def __init__(self, low, high, validate_args=None):
        self._take(validate_args, low=low, high=high)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self):
        return constraints.interval(self.low, self.high)

    mean = property(lambda self: (self.high + self.low) / 2)
    mode = property(lambda self: math.nan * self.high)
    stddev = property(lambda self: (self.high - self.low) / 12**0.5)
    variance = property(lambda self: (self.high - self.low).pow(2) / 12)

    def rsample(self, sample_shape=Size()):  # noqa: B008
        return self.low + uniform(self._extended_shape(sample_shape), self.low) * (self.high - self.low)

    def log_prob(self, value):
        self._checked(value)
        inside = self.low.le(value).type_as(self.low) * self.high.gt(value).type_as(self.low)
        return inside.log() - (self.high - self.low).log()

    def cdf(self, value):
        self._checked(value)
        return ((value - self.low) / (self.high - self.low)).clamp(min=0, max=1)

    def icdf(self, value):
        return value * (self.high - self.low) + self.low

    def entropy(self):
        return (self.high - self.low).log()


class GeneralizedPareto(Family):
    """What exceeds a high threshold: exponential for concentration 0, with a heavy end above it, bounded below it."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real}
    has_rsample = True

    def __init__(self, loc, scale, concentration, validate_args=None):
        self._take(validate_args, loc=loc, scale=scale, concentration=concentration)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self):
        upper = op("where", self.concentration < 0, self.loc - self.scale / self.concentration, math.inf)
        return constraints.interval(self.loc, upper)

    def _is_exponential(self) -> Tensor:
        return op("isclose", self.concentration, self.concentration.new_zeros(()))

    def _finite(self) -> Tensor:
        """The concentration, with 1 in place of 0: what is computed of it there is not used."""
        return op("where", self._is_exponential(), 1.0, self.concentration)

    @property
    def mean(self):
        c = self.concentration
        return (self.loc + self.scale / (1 - c)).masked_fill(c >= 1, math.nan)

    @property
    def variance(self):
        c = self.concentration
        return (self.scale.pow(2) / ((1 - c).pow(2) * (1 - 2 * c))).masked_fill(c >= 0.5, math.nan)

    mode = property(lambda self: self.loc)

    def rsample(self, sample_shape=Size()):  # noqa: B008
        return self.icdf(uniform(self._extended_shape(sample_shape), self.loc))

    def log_prob(self, value):
        self._checked(value)
        z = (value - self.loc) / self.scale
        c = self._finite()
        return op("where", self._is_exponential(), -z, -(1 + 1 / c) * (c * z).log1p()) - self.scale.log()

    def log_survival_function(self, value):
        """log(1 - cdf(value))."""
        z = (value - self.loc) / self.scale
        c = self._finite()
        return op("where", self._is_exponential(), -z, -(c * z).log1p() / c)

    def cdf(self, value):
        self._checked(value)
        return 1 - self.log_survival_function(value).exp()

    def log_cdf(self, value):
        """log(cdf(value))."""
        return (-self.log_survival_function(value).exp()).log1p()

    def icdf(self, value):
        log_rest = (-value).log1p()
        c = self._finite()
        return self.loc + self.scale * op("where", self._is_exponential(), -log_rest, (-c * log_rest).expm1() / c)

    def entropy(self):
        return self.scale.log() + self.concentration + 1


class VonMises(Family):
    """exp(concentration cos(x - loc)) on the circle: the normal distribution of angles."""

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real

    def __init__(self, loc, concentration, validate_args=None):
        self._take(validate_args, loc=loc, concentration=concentration)

    mean = property(lambda self: self.loc)
    mode = mean

    @property
    def variance(self):
        """The circular variance, 1 - I1(k) / I0(k)."""
        return 1 - (log_bessel(self.concentration, 1) - log_bessel(self.concentration, 0)).exp()

    def log_prob(self, value):
        self._checked(value)
        return self.concentration * (value - self.loc).cos() - math.log(2 * math.pi) - log_bessel(self.concentration, 0)

    def sample(self, sample_shape=Size()):  # noqa: B008
        """By rejection from a wrapped Cauchy distribution: D. J. Best and N. I. Fisher, Applied Statistics 28 (1979)."""
        shape = self._extended_shape(sample_shape)
        with modes.no_grad():
            loc, k = self.loc.double(), self.concentration.double()
            tau = 1 + (1 + 4 * k**2).sqrt()
            rho = (tau - (2 * tau).sqrt()) / (2 * k)
            r = op("where", k < 1e-5, 1 / k + k, (1 + rho**2) / (2 * rho)).expand(shape)
            found = loc.new_zeros(shape)
            done = found.bool()
            while not bool(done.all()):
                u1, u2, u3 = uniform((3, *shape), loc).unbind()
                z = (math.pi * u1).cos()
                f = (1 + r * z) / (r + z)
                c = k * (r - f)
                accepted = (c * (2 - c) - u2 > 0) | ((c / u2).log() + 1 - c >= 0)
                found = op("where", accepted, (u3 - 0.5).sign() * f.acos(), found)
                done = done | accepted
            return ((found + math.pi + loc) % (2 * math.pi) - math.pi).to(self.loc.dtype)


def log_bessel(x: Tensor, order: int) -> Tensor:
    """log I0(x) or log I1(x), without overflow: the exponentially scaled function's logarithm plus x."""
    return op(f"special.i{order}e", x).log() + x
