"""Distributions made of others: batch dimensions taken as part of the event, and mixtures."""

from __future__ import annotations

from flambeau import modes
from flambeau.distributions import constraints
from flambeau.distributions.choices import Categorical
from flambeau.distributions.distribution import Distribution
from flambeau.distributions.utils import op, sum_rightmost
from flambeau.tensor import Size

__all__ = ["Independent", "MixtureSameFamily"]


class Independent(Distribution):
    """The last batch dimensions of a distribution as part of its event: many numbers, drawn together, as one vector."""

    arg_constraints: dict = {}

    def __init__(self, base_distribution, reinterpreted_batch_ndims, validate_args=None):
        batch = base_distribution.batch_shape
        if reinterpreted_batch_ndims > len(batch):
            found = f"actual {reinterpreted_batch_ndims} vs {len(batch)}"
            raise ValueError(f"Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), {found}")
        shape = batch + base_distribution.event_shape
        event_dim = reinterpreted_batch_ndims + len(base_distribution.event_shape)
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, reinterpreted_batch_ndims
        super().__init__(shape[: len(shape) - event_dim], shape[len(shape) - event_dim :], validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        new = self._get_checked_instance(Independent, _instance)
        shape = Size(batch_shape)
        new.base_dist = self.base_dist.expand(shape + self.event_shape[: self.reinterpreted_batch_ndims])
        new.reinterpreted_batch_ndims = self.reinterpreted_batch_ndims
        return self._as_expanded(new, shape)

    has_rsample = property(lambda self: self.base_dist.has_rsample)  # type: ignore[override]

    @property
    def has_enumerate_support(self):  # type: ignore[override]
        return False if self.reinterpreted_batch_ndims > 0 else self.base_dist.has_enumerate_support

    @constraints.dependent_property
    def support(self):
        found, n = self.base_dist.support, self.reinterpreted_batch_ndims
        return constraints.independent(found, n) if n else found

    mean = property(lambda self: self.base_dist.mean)  # type: ignore[assignment]
    mode = property(lambda self: self.base_dist.mode)  # type: ignore[assignment]
    variance = property(lambda self: self.base_dist.variance)  # type: ignore[assignment]

    def sample(self, sample_shape=Size()):  # noqa: B008
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape=Size()):  # noqa: B008
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value):
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self):
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand=True):
        if self.reinterpreted_batch_ndims > 0:
            raise NotImplementedError("Enumeration over cartesian product is not implemented")
        return self.base_dist.enumerate_support(expand=expand)

    def __repr__(self):
        return f"{type(self).__name__}({self.base_dist}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamily(Distribution):
    """A draw from one of several components, chosen at random. The components lie along the last batch dimension."""

    arg_constraints: dict = {}

    def __init__(self, mixture_distribution, component_distribution, validate_args=None):
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(
                "The Mixture distribution needs to be a Categorical, which chooses the component, but found "
                f"{type(mixture_distribution).__name__}"
            )
        if not isinstance(component_distribution, Distribution):
            raise ValueError(f"The Component distribution needs to be a Distribution, but found {type(component_distribution).__name__}")
        mixture_batch, component_batch = mixture_distribution.batch_shape, component_distribution.batch_shape
        for a, b in zip(reversed(mixture_batch), reversed(component_batch[:-1]), strict=False):
            if 1 not in (a, b) and a != b:
                what = f"`mixture_distribution.batch_shape` {mixture_batch} is not compatible with that of the components"
                raise ValueError(f"{what}({component_batch})")
        many, given = mixture_distribution.logits.shape[-1], component_batch[-1]
        if many != given:
            raise ValueError(
                f"`mixture_distribution` chooses among {many} components, but `component_distribution.batch_shape[-1]` is {given}"
            )
        self._mixture_distribution, self._component_distribution = mixture_distribution, component_distribution
        self._num_component = given
        self._event_ndims = len(component_distribution.event_shape)
        super().__init__(component_batch[:-1], component_distribution.event_shape, validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        new = self._get_checked_instance(MixtureSameFamily, _instance)
        shape = Size(batch_shape)
        new._component_distribution = self._component_distribution.expand((*shape, self._num_component))
        new._mixture_distribution = self._mixture_distribution.expand(shape)
        new._num_component, new._event_ndims = self._num_component, self._event_ndims
        return self._as_expanded(new, shape)

    @constraints.dependent_property
    def support(self):
        return constraints.MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self):
        """Which component is chosen."""
        return self._mixture_distribution

    @property
    def component_distribution(self):
        """The components."""
        return self._component_distribution

    def _weights(self):
        probs = self.mixture_distribution.probs
        return probs.reshape(probs.shape + (1,) * self._event_ndims)

    def _over_components(self, values):
        return (self._weights() * values).sum(-1 - self._event_ndims)

    mean = property(lambda self: self._over_components(self.component_distribution.mean))

    @property
    def variance(self):
        """The mean of the components' variances, plus the variance of their means."""
        within = self._over_components(self.component_distribution.variance)
        between = (self.component_distribution.mean - self.mean.unsqueeze(-1 - self._event_ndims)).pow(2)
        return within + self._over_components(between)

    def _beside(self, value):
        return value.unsqueeze(-1 - self._event_ndims)

    def cdf(self, x):
        found = self.component_distribution.cdf(self._beside(x))
        return (found * self.mixture_distribution.probs).sum(-1)

    def log_prob(self, x):
        self._checked(x)
        log_mixture = op("log_softmax", self.mixture_distribution.logits, -1)
        return op("logsumexp", self.component_distribution.log_prob(self._beside(x)) + log_mixture, -1)

    def sample(self, sample_shape=Size()):  # noqa: B008
        with modes.no_grad():
            sample_shape = Size(sample_shape)
            chosen = self.mixture_distribution.sample(sample_shape)
            drawn = self.component_distribution.sample(sample_shape)
            dim = len(sample_shape) + len(self.batch_shape)
            places = chosen.reshape(chosen.shape + (1,) * (self._event_ndims + 1))
            repeats = (1,) * (chosen.dim() + 1) + tuple(self.event_shape)
            return drawn.gather(dim, places.repeat(repeats)).squeeze(dim)

    def __repr__(self):
        return f"MixtureSameFamily(\n  {self.mixture_distribution},\n  {self.component_distribution})"
