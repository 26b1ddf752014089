"""What all distributions share: shapes, validation, and taking parameters.

A sample has the shape sample_shape + batch_shape + event_shape: how many are drawn, how many distributions there are, and what one draw of
one of them is (a number, a vector, a matrix). `log_prob` gives one number per event.
"""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

from flambeau import modes
from flambeau.distributions import constraints
from flambeau.distributions.utils import broadcast_all, lazy_property
from flambeau.tensor import Size, Tensor

__all__ = ["Distribution", "ExponentialFamily", "Family"]


class Distribution:
    """The base of all distributions.

    batch_shape     the shape of the parameters: one distribution for each place
    event_shape     the shape of one draw
    validate_args   whether parameters and values are checked; None: as `set_default_validate_args` says
    """

    has_rsample = False
    has_enumerate_support = False
    _validate_args = __debug__

    @property
    def arg_constraints(self) -> Any:
        """{name of a parameter: where it may lie}."""
        raise self._missing("arg_constraints")

    @property
    def support(self) -> Any:
        """Where values may lie."""
        raise self._missing("support")

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether distributions check their arguments if they are not told."""
        if value not in (True, False):
            raise ValueError("set_default_validate_args expects True or False")
        Distribution._validate_args = value

    def __init__(self, batch_shape=Size(), event_shape=Size(), validate_args: bool | None = None):  # noqa: B008 - Sizes do not change
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_parameters()
        super().__init__()

    def _check_parameters(self) -> None:
        try:
            limits = self.arg_constraints
        except NotImplementedError:
            words = "does not define `arg_constraints`. Set arg_constraints = {}, or pass validate_args=False to switch validation off."
            warnings.warn(f"{type(self)} {words}", stacklevel=4)
            return
        for name, constraint in limits.items():
            if constraints.is_dependent(constraint):
                continue  # known for a distribution at hand only, and this one is in the making
            if name not in self.__dict__ and isinstance(getattr(type(self), name, None), lazy_property):
                continue  # computed from another parameter, which is checked
            value = getattr(self, name)
            if not bool(constraint.check(value).all()):
                raise ValueError(
                    f"Expected parameter {name} of {self!r} to satisfy the constraint {constraint!r}, but in "
                    f"{type(value).__name__} {tuple(value.shape)} there are invalid values:\n{value}"
                )

    @property
    def batch_shape(self) -> Size:
        """The shape of the parameters."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one draw."""
        return self._event_shape

    def _missing(self, what: str):
        return NotImplementedError(f"{type(self).__name__} has no {what}")

    def expand(self, batch_shape, _instance=None):
        """The same distribution for a larger batch; parameters are expanded, not copied."""
        raise self._missing("expand()")

    @property
    def mean(self) -> Tensor:
        """The expected value."""
        raise self._missing("mean")

    @property
    def mode(self) -> Tensor:
        """The most likely value."""
        raise NotImplementedError(f"{type(self)} does not implement mode")

    @property
    def variance(self) -> Tensor:
        """The expected squared distance from the mean."""
        raise self._missing("variance")

    @property
    def stddev(self) -> Tensor:
        """The square root of the variance."""
        return self.variance.sqrt()

    def sample(self, sample_shape=Size()) -> Tensor:  # noqa: B008
        """Draws without gradients."""
        with modes.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape=Size()) -> Tensor:  # noqa: B008
        """Draws through which gradients reach the parameters."""
        raise self._missing("rsample(): its draws cannot be differentiated")

    def sample_n(self, n: int) -> Tensor:
        """sample((n,)), by its old name."""
        warnings.warn("sample_n(n) is an old name and will be deprecated: write sample((n,))", UserWarning, stacklevel=2)
        return self.sample(Size((n,)))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density, or of the probability of a discrete value."""
        raise self._missing("log_prob()")

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of a value up to this one."""
        raise self._missing("cdf()")

    def icdf(self, value: Tensor) -> Tensor:
        """The value that is not exceeded with this probability."""
        raise self._missing("icdf()")

    def _enumerated(self, values: Tensor, expand: bool) -> Tensor:
        """(n, *event) -> (n, 1, ..., 1, *event), as many ones as there are batch dimensions; expanded to the batch if wanted."""
        first, event = values.shape[:1], values.shape[1:]
        spread = values.reshape((*first, *(1 for _ in self._batch_shape), *event))
        return spread.expand((*first, *self._batch_shape, *event)) if expand else spread

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values of a discrete distribution, along a new first dimension."""
        raise self._missing("enumerate_support(): its values cannot be counted")

    def entropy(self) -> Tensor:
        """The expected -log_prob."""
        raise self._missing("entropy()")

    def perplexity(self) -> Tensor:
        """exp(entropy)."""
        return self.entropy().exp()

    def _extended_shape(self, sample_shape=Size()) -> Size:  # noqa: B008
        return Size(sample_shape) + self._batch_shape + self._event_shape

    def _validate_sample(self, value: Tensor) -> None:
        """ValueError unless the value is a tensor of a fitting shape within the support."""
        if not isinstance(value, Tensor):
            raise ValueError(f"The value argument to log_prob is a {type(value).__name__}, where a tensor is expected")
        dims = len(self._event_shape)
        found = tuple(value.shape[value.dim() - dims :])
        if found != tuple(self._event_shape):
            raise ValueError(f"The right-most size of value must be event_shape, {self._event_shape}, but value has shape {value.size()}")
        expected = self._batch_shape + self._event_shape
        for i, j in zip(reversed(value.shape), reversed(expected), strict=False):
            if 1 not in (i, j) and i != j:
                raise ValueError(f"Value of shape {value.size()} does not broadcast with batch_shape+event_shape, {expected}")
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(
                f"{type(self)} does not define `support`, so values are not checked. Pass validate_args=False to say that this is known",
                stacklevel=3,
            )
            return
        if not bool(support.check(value).all()):
            raise ValueError(
                f"Expected value argument ({type(value).__name__}, {tuple(value.shape)}) to be within the support {support!r} of {self!r}, "
                f"but there are others in it:\n{value}"
            )

    def _checked(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return value

    def _get_checked_instance(self, cls, _instance=None):
        if _instance is None and type(self).__init__ != cls.__init__:
            name = type(self).__name__
            raise NotImplementedError(
                f"{name} is made by an __init__ of its own, so {cls.__name__}.expand() cannot make another one: define {name}.expand()"
            )
        return self.__new__(type(self)) if _instance is None else _instance

    def _as_expanded(self, new, batch_shape):
        """`new`, which `expand` has given its parameters, with the shapes of an expanded distribution."""
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def __repr__(self) -> str:
        limits = {} if type(self).arg_constraints is Distribution.arg_constraints else self.arg_constraints
        names = [name for name in limits if name in self.__dict__]
        shown = [f"{n}: {v if v.numel() == 1 else v.size()}" for n in names for v in (self.__dict__[n],)]
        return f"{type(self).__name__}({', '.join(shown)})"


class ExponentialFamily(Distribution):
    """log p(x) = <natural parameters, statistics of x> - log normalizer + carrier measure: its entropy is a derivative of the normalizer."""

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise self._missing("natural parameters")

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        raise self._missing("log normalizer")

    @property
    def _mean_carrier_measure(self) -> float | Tensor:
        raise self._missing("carrier measure")

    def entropy(self) -> Tensor:
        """log normalizer - carrier - <natural parameters, gradient of the log normalizer> (Bregman's divergence)."""
        from flambeau.autograd.api import grad

        found: Any = -self._mean_carrier_measure
        given = [p.detach().requires_grad_() for p in self._natural_params]
        with modes.enable_grad():
            normalizer = self._log_normalizer(*given)
            slopes = grad(normalizer.sum(), given, create_graph=True)
        found = found + normalizer
        for parameter, slope in zip(given, slopes, strict=True):
            found = found - (parameter * slope).reshape((*self._batch_shape, -1)).sum(-1)  # with as many dimensions as it has
        return found


class Family(Distribution):
    """A distribution of numbers whose parameters are tensors that broadcast. Which they are, `arg_constraints` says.

    `_take(validate_args, loc=loc, scale=scale)` broadcasts them, keeps them under their names and initializes the rest; `expand` follows.
    """

    _taken: ClassVar[tuple[str, ...]] = ()

    def _take(self, validate_args: bool | None, **parameters: Any) -> None:
        for name, value in zip(parameters, broadcast_all(*parameters.values()), strict=True):
            setattr(self, name, value)
        scalar = not any(isinstance(v, Tensor) for v in parameters.values())
        super().__init__(Size() if scalar else value.size(), validate_args=validate_args)

    def _family(self) -> type:
        """The class whose `__init__` made this."""
        return next(cls for cls in type(self).__mro__ if "__init__" in vars(cls))

    def expand(self, batch_shape, _instance=None):
        new = self._get_checked_instance(self._family(), _instance)
        shape = Size(batch_shape)
        for name in self.arg_constraints:
            if name in self.__dict__:
                setattr(new, name, getattr(self, name).expand(shape))
        self._expand_more(new, shape)
        return self._as_expanded(new, shape)

    def _expand_more(self, new, shape: Size) -> None:
        """Whatever else a family keeps."""
