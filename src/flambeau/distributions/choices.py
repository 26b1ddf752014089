"""Distributions of choices among categories: as a number, as a vector with a single one, as counts."""

from __future__ import annotations

from flambeau import dtypes, factories
from flambeau.autograd import modes
from flambeau.distributions import constraints
from flambeau.distributions.distribution import Distribution
from flambeau.distributions.utils import broadcast_all, lazy_property, logits_to_probs, op, probs_to_logits
from flambeau.tensor import Size, Tensor

__all__ = ["Categorical", "Multinomial", "OneHotCategorical", "OneHotCategoricalStraightThrough"]


class Categorical(Distribution):
    """A category i with probability probs[..., i]. `probs` need not sum to one, `logits` are their logarithms up to a constant."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True

    def __init__(self, probs=None, logits=None, validate_args=None):
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        if probs is not None:
            if probs.dim() < 1:
                raise ValueError("`probs` parameter must be at least one-dimensional.")
            self.probs = probs / probs.sum(-1, keepdim=True)
        else:
            if logits.dim() < 1:
                raise ValueError("`logits` parameter must be at least one-dimensional.")
            self.logits = logits - logits.logsumexp(dim=-1, keepdim=True)
        self._param = self.probs if probs is not None else self.logits
        self._num_events = self._param.size()[-1]
        super().__init__(self._param.size()[:-1], validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        new = self._get_checked_instance(Categorical, _instance)
        shape = Size(batch_shape)
        for name in ("probs", "logits"):
            if name in self.__dict__:
                new.__dict__[name] = new._param = getattr(self, name).expand((*shape, self._num_events))
        new._num_events = self._num_events
        Distribution.__init__(new, shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self):
        return constraints.integer_interval(0, self._num_events - 1)

    @lazy_property
    def logits(self) -> Tensor:
        """Normalized log probabilities."""
        return probs_to_logits(self.probs)

    @lazy_property
    def probs(self) -> Tensor:
        """Normalized probabilities."""
        return logits_to_probs(self.logits)

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter."""
        return self._param.size()

    @property
    def mean(self):
        return factories.full(self._extended_shape(), float("nan"), dtype=self.probs.dtype, device=self.probs.device)

    @property
    def mode(self):
        return self.probs.argmax(-1)

    variance = mean

    def sample(self, sample_shape=Size()):  # noqa: B008
        sample_shape = Size(sample_shape)
        with modes.no_grad():
            drawn = op("multinomial", self.probs.reshape(-1, self._num_events), sample_shape.numel(), True).T
            return drawn.reshape(self._extended_shape(sample_shape))

    def log_prob(self, value):
        self._checked(value)
        value = value.long().unsqueeze(-1)
        value, log_probs = op("broadcast_tensors", value, self.logits)
        return log_probs.gather(-1, value[..., :1]).squeeze(-1)

    def entropy(self):
        logits = self.logits.clamp(min=dtypes.finfo(self.logits.dtype).min)  # 0 log 0 is 0
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand=True):
        values = factories.tensor(list(range(self._num_events)), dtype=dtypes.int64, device=self._param.device)
        values = values.view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1, *self._batch_shape)) if expand else values


class _OfCategories(Distribution):
    """A distribution of vectors, one entry per category, made of a Categorical."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}

    def _from(self, categorical: Categorical, validate_args) -> None:
        self._categorical = categorical
        super().__init__(categorical.batch_shape, categorical.param_shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        cls = next(c for c in type(self).__mro__ if "__init__" in vars(c))
        new = self._get_checked_instance(cls, _instance)
        shape = Size(batch_shape)
        new._categorical = self._categorical.expand(shape)
        self._expand_more(new)
        Distribution.__init__(new, shape, self.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def _expand_more(self, new) -> None:
        """Whatever else it keeps."""

    @property
    def logits(self) -> Tensor:
        """Normalized log probabilities."""
        return self._categorical.logits

    @property
    def probs(self) -> Tensor:
        """Normalized probabilities."""
        return self._categorical.probs

    @property
    def _param(self) -> Tensor:
        return self._categorical._param

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter."""
        return self._param.size()


class OneHotCategorical(_OfCategories):
    """A category as a vector that is 1 at its place and 0 elsewhere."""

    support = constraints.one_hot
    has_enumerate_support = True

    def __init__(self, probs=None, logits=None, validate_args=None):
        self._from(Categorical(probs, logits, validate_args=False if validate_args is False else None), validate_args)

    @property
    def mean(self):
        return self._categorical.probs

    @property
    def mode(self):
        probs = self._categorical.probs
        return op("nn.functional.one_hot", probs.argmax(-1), probs.shape[-1]).to(probs)

    @property
    def variance(self):
        return self._categorical.probs * (1 - self._categorical.probs)

    def sample(self, sample_shape=Size()):  # noqa: B008
        indices = self._categorical.sample(Size(sample_shape))
        return op("nn.functional.one_hot", indices, self._categorical._num_events).to(self.probs)

    def log_prob(self, value):
        self._checked(value)
        return self._categorical.log_prob(value.max(-1)[1])

    def entropy(self):
        return self._categorical.entropy()

    def enumerate_support(self, expand=True):
        n = self.event_shape[0]
        values = factories.eye(n, dtype=self._param.dtype, device=self._param.device)
        values = values.view((n,) + (1,) * len(self.batch_shape) + (n,))
        return values.expand((n, *self.batch_shape, n)) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """One-hot draws whose gradient is that of the probabilities (Y. Bengio and others, 2013)."""

    has_rsample = True

    def rsample(self, sample_shape=Size()):  # noqa: B008
        drawn, probs = self.sample(sample_shape), self._categorical.probs
        return drawn + (probs - probs.detach())


class Multinomial(_OfCategories):
    """How often each category is chosen in `total_count` draws."""

    total_count: int

    def __init__(self, total_count=1, probs=None, logits=None, validate_args=None):
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        categorical = Categorical(probs=probs, logits=logits)
        from flambeau.distributions.counting import Binomial

        self._binomial = Binomial(total_count=total_count, probs=categorical.probs)
        self._from(categorical, validate_args)

    def _expand_more(self, new) -> None:
        new.total_count, new._binomial = self.total_count, self._binomial

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self):
        return constraints.multinomial(self.total_count)

    @property
    def mean(self):
        return self.probs * self.total_count

    @property
    def variance(self):
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape=Size()):  # noqa: B008
        drawn = self._categorical.sample(Size((self.total_count,)) + Size(sample_shape))
        drawn = drawn.permute(*range(1, drawn.dim()), 0)  # draws last
        counts = drawn.new_zeros(self._extended_shape(sample_shape)).scatter_add_(-1, drawn, factories.ones_like(drawn))
        return counts.type_as(self.probs)

    def log_prob(self, value):
        self._checked(value)
        logits, value = broadcast_all(self.logits, value)
        ways = (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1)
        logits = logits.clone().masked_fill((value == 0) & (logits == -float("inf")), 0)
        return ways + (logits * value).sum(-1)

    def entropy(self):
        n = factories.tensor(self.total_count)
        category = self._categorical.entropy()
        support = self._binomial.enumerate_support(expand=False)[1:]
        weights = self._binomial.log_prob(support).exp()
        return n * category - (n + 1).lgamma() + (weights * (support + 1).lgamma()).sum([0, -1])
