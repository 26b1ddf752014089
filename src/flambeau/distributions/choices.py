"""Distributions of choices among categories: as a number, as a vector with a single one, as counts."""

from __future__ import annotations

from flambeau import dtypes, modes
from flambeau.distributions import constraints
from flambeau.distributions.distribution import Distribution
from flambeau.distributions.utils import broadcast_all, lazy_property, logits_to_probs, op, probs_to_logits
from flambeau.tensor import Size, Tensor
from flambeau.tensor.making import factories

__all__ = ["Categorical", "Multinomial", "OneHotCategorical", "OneHotCategoricalStraightThrough"]

WEIGHTS = {"probs": constraints.simplex, "logits": constraints.real_vector}  # one of them is given, the other follows


def _normalized(probs: Tensor | None, logits: Tensor | None) -> tuple[str, Tensor]:
    """(the name of what was given, its values such that the probabilities along the last dimension sum to one)."""
    given = {name: value for name, value in (("probs", probs), ("logits", logits)) if value is not None}
    if len(given) != 1:
        raise ValueError(f"Either `probs` or `logits` must be given, and one of them only: found {' and '.join(given) or 'neither'}")
    ((name, value),) = given.items()
    if not value.dim():
        raise ValueError(f"`{name}` parameter must be at least one-dimensional, with the categories last, but it is a single number")
    total = value.sum(-1, keepdim=True) if name == "probs" else value.logsumexp(-1, keepdim=True)
    return name, value / total if name == "probs" else value - total


class Categorical(Distribution):
    """A category i with probability probs[..., i]. `probs` need not sum to one, `logits` are their logarithms up to a constant."""

    arg_constraints = WEIGHTS
    has_enumerate_support = True

    def __init__(self, probs=None, logits=None, validate_args=None):
        name, self._param = _normalized(probs, logits)
        setattr(self, name, self._param)
        *batch, self._num_events = self._param.shape
        super().__init__(Size(batch), validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        new = self._get_checked_instance(Categorical, _instance)
        new._num_events, whole = self._num_events, Size((*batch_shape, self._num_events))
        for name in WEIGHTS.keys() & self.__dict__.keys():
            setattr(new, name, getattr(self, name).expand(whole))
        new._param = self._param.expand(whole)
        return self._as_expanded(new, whole[:-1])

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self):
        return constraints.integer_interval(0, self._num_events - 1)

    @lazy_property
    def probs(self) -> Tensor:
        """Normalized probabilities."""
        return logits_to_probs(self.logits)

    @lazy_property
    def logits(self) -> Tensor:
        """Normalized log probabilities."""
        return probs_to_logits(self.probs)

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter."""
        return self._param.shape

    mode = property(lambda self: self.probs.argmax(-1))

    @property
    def mean(self):
        return self.probs.new_full(self._batch_shape, float("nan"))  # the names of categories have none

    variance = mean

    def sample(self, sample_shape=Size()):  # noqa: B008
        wanted = Size(sample_shape)
        with modes.no_grad():
            rows = self.probs.reshape(-1, self._num_events)
            drawn = op("multinomial", rows, wanted.numel(), replacement=True)  # (batch, draws)
        return drawn.T.reshape(wanted + self._batch_shape)

    def log_prob(self, value):
        self._checked(value)
        places, table = op("broadcast_tensors", value.long()[..., None], self.logits)
        return table.gather(-1, places[..., :1])[..., 0]

    def entropy(self):
        finite = self.logits.clamp(min=dtypes.finfo(self.logits.dtype).min)  # 0 log 0 is 0
        return (self.probs * -finite).sum(-1)

    def enumerate_support(self, expand=True):
        categories = factories.tensor(range(self._num_events), dtype=dtypes.int64, device=self._param.device)
        return self._enumerated(categories, expand)


class _OfCategories(Distribution):
    """A distribution of vectors, one entry per category, made of a Categorical."""

    arg_constraints = WEIGHTS

    def _from(self, categorical: Categorical, validate_args) -> None:
        self._categorical = categorical
        *batch, n = categorical.param_shape
        super().__init__(Size(batch), Size((n,)), validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        made_by = next(cls for cls in type(self).__mro__ if "__init__" in vars(cls))
        new = self._get_checked_instance(made_by, _instance)
        new._categorical = self._categorical.expand(batch_shape)
        self._expand_more(new)
        return self._as_expanded(new, new._categorical.batch_shape)

    def _expand_more(self, new) -> None:
        """Whatever else it keeps."""

    probs = property(lambda self: self._categorical.probs, doc="Normalized probabilities.")
    logits = property(lambda self: self._categorical.logits, doc="Normalized log probabilities.")
    param_shape = property(lambda self: self._categorical.param_shape, doc="The shape of the parameter.")
    _param = property(lambda self: self._categorical._param)


class OneHotCategorical(_OfCategories):
    """A category as a vector that is 1 at its place and 0 elsewhere."""

    support = constraints.one_hot
    has_enumerate_support = True

    def __init__(self, probs=None, logits=None, validate_args=None):
        self._from(Categorical(probs, logits, validate_args=False if validate_args is False else None), validate_args)

    def _vectors(self, categories: Tensor) -> Tensor:
        return op("nn.functional.one_hot", categories, self._categorical._num_events).to(self._param)

    mode = property(lambda self: self._vectors(self._categorical.mode))
    mean = property(lambda self: self.probs)
    variance = property(lambda self: self.probs * (1 - self.probs))

    def sample(self, sample_shape=Size()):  # noqa: B008
        return self._vectors(self._categorical.sample(sample_shape))

    def log_prob(self, value):
        self._checked(value)
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self):
        return self._categorical.entropy()

    def enumerate_support(self, expand=True):
        (n,) = self._event_shape
        return self._enumerated(factories.eye(n, dtype=self._param.dtype, device=self._param.device), expand)


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """One-hot draws whose gradient is that of the probabilities (Y. Bengio and others, 2013)."""

    has_rsample = True

    def rsample(self, sample_shape=Size()):  # noqa: B008
        return self.probs - self.probs.detach() + self.sample(sample_shape)


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

    mean = property(lambda self: self.probs * self.total_count)
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs))

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
