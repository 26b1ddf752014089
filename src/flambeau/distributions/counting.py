"""Distributions of counts: successes, failures, trials, events. And their kin on the unit interval, the continuous Bernoulli.

Probabilities are given as such (`probs`) or as log odds (`logits`); the other is computed when it is asked for.
"""

from __future__ import annotations

import math

from flambeau import dtypes, modes
from flambeau.distributions import constraints
from flambeau.distributions.distribution import ExponentialFamily, Family
from flambeau.distributions.utils import broadcast_all, clamp_probs, lazy_property, logits_to_probs, op, probs_to_logits, uniform
from flambeau.tensor import Size, Tensor
from flambeau.tensor.making import factories

__all__ = ["Bernoulli", "Binomial", "ContinuousBernoulli", "Geometric", "NegativeBinomial", "Poisson"]


class _Odds(Family):
    """A family whose parameter is a probability, or log odds."""

    def _take_odds(self, probs, logits, validate_args) -> None:
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be given, and only one of them")
        given = {"probs": probs} if logits is None else {"logits": logits}
        self._take(validate_args, **given)

    @lazy_property
    def probs(self) -> Tensor:
        """The probability of a success."""
        return logits_to_probs(self.logits, is_binary=True)

    @lazy_property
    def logits(self) -> Tensor:
        """The log odds of a success."""
        return probs_to_logits(self.probs, is_binary=True)

    @property
    def _param(self) -> Tensor:
        given = self.__dict__.get("probs")  # asking for self.probs would compute it
        return self.logits if given is None else given

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter."""
        return self._param.size()


class Bernoulli(_Odds, ExponentialFamily):
    """1 with probability `probs`, else 0."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.boolean
    has_enumerate_support = True
    _mean_carrier_measure = 0

    def __init__(self, probs=None, logits=None, validate_args=None):
        self._take_odds(probs, logits, validate_args)

    mean = property(lambda self: self.probs)
    mode = property(lambda self: (self.probs >= 0.5).to(self.probs).masked_fill(self.probs == 0.5, math.nan))
    variance = property(lambda self: self.probs * (1 - self.probs))

    def sample(self, sample_shape=Size()):  # noqa: B008
        with modes.no_grad():
            return op("bernoulli", self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value):
        self._checked(value)
        logits, value = broadcast_all(self.logits, value)
        return -op("nn.functional.binary_cross_entropy_with_logits", logits, value, reduction="none")

    def entropy(self):
        return op("nn.functional.binary_cross_entropy_with_logits", self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand=True):
        values = factories.tensor([0.0, 1.0], dtype=self._param.dtype, device=self._param.device)
        return self._enumerated(values, expand)

    _natural_params = property(lambda self: (self.logits,))

    def _log_normalizer(self, x):
        return x.exp().log1p()


class ContinuousBernoulli(_Odds, ExponentialFamily):
    """probs^x (1 - probs)^(1 - x) on [0, 1], normalized: for images whose pixels are no coins (Loaiza-Ganem and Cunningham, 2019).

    Around probs = 1/2 the normalizer is 0 / 0; within `lims` a Taylor series takes its place.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(self, probs=None, logits=None, lims=(0.499, 0.501), validate_args=None):
        self._take_odds(probs, logits, validate_args)
        if "probs" in self.__dict__:
            self.probs = clamp_probs(self.probs)
        self._lims = lims

    def _expand_more(self, new, shape):
        new._lims = self._lims

    @lazy_property
    def probs(self) -> Tensor:
        """The parameter as a probability, kept off 0 and 1."""
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    def _outside(self) -> Tensor:
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _cut(self) -> Tensor:
        """The probabilities, with the edge of the middle in place of what lies in it."""
        return op("where", self._outside(), self.probs, self._lims[0] * self.probs.new_ones(()).expand_as(self.probs))

    def _cont_bern_log_norm(self) -> Tensor:
        cut = self._cut()
        low = op("where", cut <= 0.5, cut, cut.new_zeros(()))
        high = op("where", cut >= 0.5, cut, cut.new_ones(()))
        spread = ((-cut).log1p() - cut.log()).abs().log() - op("where", cut <= 0.5, (-2.0 * low).log1p(), (2.0 * high - 1.0).log())
        x = (self.probs - 0.5).pow(2)
        return op("where", self._outside(), spread, math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x)

    @property
    def mean(self):
        cut = self._cut()
        found = cut / (2.0 * cut - 1.0) + 1.0 / ((-cut).log1p() - cut.log())
        x = self.probs - 0.5
        return op("where", self._outside(), found, 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x.pow(2)) * x)

    stddev = property(lambda self: self.variance.sqrt())

    @property
    def variance(self):
        cut = self._cut()
        found = cut * (cut - 1.0) / (1.0 - 2.0 * cut).pow(2) + 1.0 / ((-cut).log1p() - cut.log()).pow(2)
        x = (self.probs - 0.5).pow(2)
        return op("where", self._outside(), found, 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x)

    def sample(self, sample_shape=Size()):  # noqa: B008
        with modes.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape=Size()):  # noqa: B008
        return self.icdf(uniform(self._extended_shape(sample_shape), self.probs))

    def log_prob(self, value):
        self._checked(value)
        logits, value = broadcast_all(self.logits, value)
        return -op("nn.functional.binary_cross_entropy_with_logits", logits, value, reduction="none") + self._cont_bern_log_norm()

    def cdf(self, value):
        self._checked(value)
        cut = self._cut()
        found = (cut.pow(value) * (1.0 - cut).pow(1.0 - value) + cut - 1.0) / (2.0 * cut - 1.0)
        found = op("where", self._outside(), found, value)
        return op("where", value <= 0.0, found.new_zeros(()), op("where", value >= 1.0, found.new_ones(()), found))

    def icdf(self, value):
        cut = self._cut()
        found = ((-cut + value * (2.0 * cut - 1.0)).log1p() - (-cut).log1p()) / (cut.log() - (-cut).log1p())
        return op("where", self._outside(), found, value)

    def entropy(self):
        log0, log1 = (-self.probs).log1p(), self.probs.log()
        return self.mean * (log0 - log1) - self._cont_bern_log_norm() - log0

    _natural_params = property(lambda self: (self.logits,))

    def _log_normalizer(self, x):
        """The log normalizer at log odds x."""
        outside = (x <= self._lims[0] - 0.5) | (x > self._lims[1] - 0.5)
        cut = op("where", outside, x, (self._lims[0] - 0.5) * x.new_ones(()).expand_as(x))
        return op("where", outside, cut.expm1().abs().log() - cut.abs().log(), 0.5 * x + x.pow(2) / 24.0 - x.pow(4) / 2880.0)


class _Trials(_Odds):
    """A family of trials: `total_count` of them, or until so many fail."""

    def _take_trials(self, total_count, probs, logits, validate_args) -> None:
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be given, and only one of them")
        name, value = ("probs", probs) if logits is None else ("logits", logits)
        count, parameter = broadcast_all(total_count, value)
        setattr(self, name, parameter)
        self.total_count = count.type_as(parameter)
        super(Family, self).__init__(parameter.size(), validate_args=validate_args)


class Binomial(_Trials):
    """How many of `total_count` trials succeed."""

    arg_constraints = {"total_count": constraints.nonnegative_integer, "probs": constraints.unit_interval, "logits": constraints.real}
    has_enumerate_support = True

    def __init__(self, total_count=1, probs=None, logits=None, validate_args=None):
        self._take_trials(total_count, probs, logits, validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self):
        return constraints.integer_interval(0, self.total_count)

    mean = property(lambda self: self.total_count * self.probs)
    mode = property(lambda self: ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count))
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs))

    def sample(self, sample_shape=Size()):  # noqa: B008
        shape = self._extended_shape(sample_shape)
        with modes.no_grad():
            return op("binomial", self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value):
        self._checked(value)
        ways = (self.total_count + 1).lgamma() - (value + 1).lgamma() - (self.total_count - value + 1).lgamma()
        normalizer = -self.total_count * op("nn.functional.logsigmoid", -self.logits)  # -n log(1 - p)
        return value * self.logits + ways - normalizer

    def entropy(self):
        count = int(self.total_count.max())
        if not bool((self.total_count == count).all()):
            raise NotImplementedError("Inhomogeneous total count not supported by `entropy`.")
        found = self.log_prob(self.enumerate_support(False))
        return -(found.exp() * found).sum(0)

    def enumerate_support(self, expand=True):
        count = int(self.total_count.max())
        if not bool((self.total_count.min() == count).all()):
            raise NotImplementedError("Inhomogeneous total count not supported by `enumerate_support`.")
        values = factories.tensor([float(i) for i in range(count + 1)], dtype=self._param.dtype, device=self._param.device)
        return self._enumerated(values, expand)


class NegativeBinomial(_Trials):
    """How many trials succeed before `total_count` fail."""

    arg_constraints = {
        "total_count": constraints.greater_than_eq(0), "probs": constraints.half_open_interval(0.0, 1.0), "logits": constraints.real,
    }  # fmt: skip
    support = constraints.nonnegative_integer

    def __init__(self, total_count, probs=None, logits=None, validate_args=None):
        self._take_trials(total_count, probs, logits, validate_args)

    mean = property(lambda self: self.total_count * self.logits.exp())
    mode = property(lambda self: ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0))
    variance = property(lambda self: self.mean / (-self.logits).sigmoid())

    @lazy_property
    def _gamma(self):
        from flambeau.distributions.positive import Gamma

        return Gamma(concentration=self.total_count, rate=(-self.logits).exp(), validate_args=False)

    def sample(self, sample_shape=Size()):  # noqa: B008
        with modes.no_grad():
            return op("poisson", self._gamma.sample(sample_shape=sample_shape))

    def log_prob(self, value):
        self._checked(value)
        unnormalized = self.total_count * op("nn.functional.logsigmoid", -self.logits) + value * op("nn.functional.logsigmoid", self.logits)
        ways = -(self.total_count + value).lgamma() + (1.0 + value).lgamma() + self.total_count.lgamma()
        return unnormalized - ways.masked_fill(self.total_count + value == 0.0, 0.0)


class Geometric(_Odds):
    """How many trials fail before the first success."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer

    def __init__(self, probs=None, logits=None, validate_args=None):
        self._take_odds(probs, logits, validate_args)
        if self._validate_args and probs is not None and not bool((self.probs > 0).all()):
            raise ValueError(
                f"Expected parameter probs of {self!r} to be positive, or there is no first success; found invalid values "
                f"among {tuple(self.probs.shape)}:\n{self.probs}"
            )

    mean = property(lambda self: 1.0 / self.probs - 1.0)
    mode = property(lambda self: factories.zeros_like(self.probs))
    variance = property(lambda self: (1.0 / self.probs - 1.0) / self.probs)

    def sample(self, sample_shape=Size()):  # noqa: B008
        shape, tiny = self._extended_shape(sample_shape), dtypes.finfo(self.probs.dtype).tiny
        with modes.no_grad():
            u = factories.empty(shape, dtype=self.probs.dtype, device=self.probs.device).uniform_(tiny, 1)
            return (u.log() / (-self.probs).log1p()).floor()

    def log_prob(self, value):
        self._checked(value)
        value, probs = broadcast_all(value, self.probs)
        probs = probs.clone().masked_fill((probs == 1) & (value == 0), 0)
        return value * (-probs).log1p() + self.probs.log()

    def entropy(self):
        return op("nn.functional.binary_cross_entropy_with_logits", self.logits, self.probs, reduction="none") / self.probs


class Poisson(Family, ExponentialFamily):
    """rate^k exp(-rate) / k!: how many rare events happen."""

    arg_constraints = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer

    def __init__(self, rate, validate_args=None):
        self._take(validate_args, rate=rate)

    mean = property(lambda self: self.rate)
    mode = property(lambda self: self.rate.floor())
    variance = property(lambda self: self.rate)

    def sample(self, sample_shape=Size()):  # noqa: B008
        with modes.no_grad():
            return op("poisson", self.rate.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value):
        self._checked(value)
        rate, value = broadcast_all(self.rate, value)
        return op("xlogy", value, rate) - rate - (value + 1).lgamma()

    _natural_params = property(lambda self: (self.rate.log(),))

    def _log_normalizer(self, x):
        return x.exp()
