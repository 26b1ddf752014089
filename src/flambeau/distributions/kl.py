"""The Kullback-Leibler divergence, KL(p || q) = E_p[log p - log q]: how many nats it costs to take p for q.

Most pairs of different families need no formula of their own. -E_p[log p] is p's entropy, and E_p[log q] asks for a few expectations under p that
depend on q's family alone: the mean and the variance if q is normal, the mean of x and of log x if q is a gamma distribution. So a table says
which expectations of p there are, and a second one what each q makes of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from flambeau import modes
from flambeau.autograd.api import grad
from flambeau.distributions.choices import Categorical, OneHotCategorical
from flambeau.distributions.counting import Bernoulli, Binomial, ContinuousBernoulli, Geometric, Poisson
from flambeau.distributions.derived import Gumbel, HalfNormal, Pareto, TransformedDistribution
from flambeau.distributions.distribution import Distribution, ExponentialFamily
from flambeau.distributions.location_scale import HALF_LOG_2PI, Cauchy, Laplace, Normal, Uniform
from flambeau.distributions.positive import Beta, Dirichlet, Exponential, Gamma
from flambeau.distributions.utils import euler_constant, op, sum_rightmost
from flambeau.distributions.vectors import (
    LowRankMultivariateNormal,
    MultivariateNormal,
    _batch_mahalanobis,
    _log_diagonal,
    _solve,
    low_rank_log_determinant,
    low_rank_mahalanobis,
)
from flambeau.distributions.wrappers import Independent
from flambeau.tensor import Tensor
from flambeau.tensor.methods.queries import broadcast_shapes

__all__ = ["kl_divergence", "register_kl"]

_KL_REGISTRY: dict[tuple[type, type], Callable] = {}
_KL_MEMOIZE: dict[tuple[type, type], Callable | None] = {}


def register_kl(type_p: type, type_q: type) -> Callable:
    """Decorates a function of (p, q) that gives their divergence. Subclasses use it too, unless a closer match is registered.

    Any class will do, a mixin of somebody's distributions as well.
    """
    for cls, name in ((type_p, "type_p"), (type_q, "type_q")):
        if not isinstance(cls, type):
            raise TypeError(f"register_kl: {name} must be a subclass of Distribution, but found {cls}")

    def decorator(function: Callable) -> Callable:
        _KL_REGISTRY[type_p, type_q] = function
        _KL_MEMOIZE.clear()
        return function

    return decorator


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """KL(p || q), one number per batch entry."""
    key = type(p), type(q)
    if key not in _KL_MEMOIZE:
        _KL_MEMOIZE[key] = _closest(*key)
    function = _KL_MEMOIZE[key]
    if function is None:
        names = f"{key[0].__name__} and {key[1].__name__}"
        raise NotImplementedError(f"No KL(p || q) is implemented for {names}. Add one with register_kl, or estimate it from samples")
    return function(p, q)


def _closest(type_p: type, type_q: type) -> Callable | None:
    """The function registered for the nearest classes both derive from."""
    matches = [(a, b) for a, b in _KL_REGISTRY if issubclass(type_p, a) and issubclass(type_q, b)]

    def distance(pair: tuple[type, type]) -> tuple[int, ...]:
        lines = ((type_p.__mro__, pair[0]), (type_q.__mro__, pair[1]))
        return tuple(line.index(base) if base in line else len(line) for line, base in lines)  # a class may be registered with an ABC

    return _KL_REGISTRY[min(matches, key=distance)] if matches else None


# -- expectations ----------------------------------------------------------------------------------------------------


def _xlogx(x: Tensor) -> Tensor:
    return op("special.xlogy", x, x)


def _uniform_log(p: Uniform, shift: float = 0.0) -> Tensor:
    """E log x of a uniform number; with shift 1, E log(1 - x)."""
    low, high = (p.low, p.high) if not shift else (shift - p.high, shift - p.low)
    return (_xlogx(high) - _xlogx(low)) / (high - low) - 1


# family -> E log x
MEAN_LOG: dict[type, Callable] = {
    Beta: lambda p: p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma(),
    Exponential: lambda p: -euler_constant - p.rate.log(),
    Gamma: lambda p: p.concentration.digamma() - p.rate.log(),
    Pareto: lambda p: p.scale.log() + p.alpha.reciprocal(),
    Uniform: _uniform_log,
}
# family -> E log(1 - x)
MEAN_LOG_REST: dict[type, Callable] = {
    Beta: lambda p: p.concentration0.digamma() - (p.concentration1 + p.concentration0).digamma(),
    Uniform: lambda p: _uniform_log(p, 1.0),
}
# family -> E exp(-x / scale)
MEAN_EXP: dict[type, Callable] = {
    Exponential: lambda p, s: p.rate / (p.rate + s.reciprocal()),
    Gamma: lambda p, s: (1 + (p.rate * s).reciprocal()).pow(-p.concentration),
    Normal: lambda p, s: (-p.loc / s + (p.scale / s).pow(2) * 0.5).exp(),
    Uniform: lambda p, s: s * ((-p.low / s).exp() - (-p.high / s).exp()) / (p.high - p.low),
}


def _outside(found: Tensor, *conditions: Tensor) -> Tensor:
    """Infinite where p gives weight to what q excludes."""
    for condition in conditions:
        found = found.masked_fill(condition, math.inf)
    return found


def _to_normal(p: Any, q: Normal) -> Tensor:
    return ((p.variance + (p.mean - q.loc).pow(2)) / q.scale.pow(2) * 0.5 + q.scale.log() + HALF_LOG_2PI) - p.entropy()


def _to_exponential(p: Any, q: Exponential) -> Tensor:
    return q.rate * p.mean - q.rate.log() - p.entropy()


def _to_gamma(p: Any, q: Gamma) -> Tensor:
    a = q.concentration
    return a.lgamma() - a * q.rate.log() - (a - 1) * MEAN_LOG[_kind(p)](p) + q.rate * p.mean - p.entropy()


def _to_pareto(p: Any, q: Pareto) -> Tensor:
    return (q.alpha + 1) * MEAN_LOG[_kind(p)](p) - q.alpha.log() - q.alpha * q.scale.log() - p.entropy()


def _to_beta(p: Any, q: Beta) -> Tensor:
    a, b, kind = q.concentration1, q.concentration0, _kind(p)
    log_beta = a.lgamma() + b.lgamma() - (a + b).lgamma()
    return log_beta - (a - 1) * MEAN_LOG[kind](p) - (b - 1) * MEAN_LOG_REST[kind](p) - p.entropy()


def _to_uniform(p: Any, q: Uniform) -> Tensor:
    return (q.high - q.low).log() - p.entropy()


def _to_continuous_bernoulli(p: Any, q: ContinuousBernoulli) -> Tensor:
    return -p.entropy() - p.mean * q.logits - (-q.probs).log1p() - q._cont_bern_log_norm()


def _to_gumbel(p: Any, q: Gumbel) -> Tensor:
    expected = MEAN_EXP[_kind(p)](p, q.scale) * (q.loc / q.scale).exp()
    return (p.mean - q.loc) / q.scale + expected + q.scale.log() - p.entropy()


def _kind(p: Distribution) -> type:
    return next(cls for cls in type(p).__mro__ if cls in MEAN_LOG or cls in MEAN_EXP)


# q -> (formula, the p it holds for everywhere, {p: where it is infinite}, the p it is always infinite for)
CROSS: dict[type, tuple[Callable, str, dict[str, Callable], str]] = {
    Normal: (_to_normal, "Beta ContinuousBernoulli Exponential Gamma Gumbel Laplace Pareto Uniform", {}, ""),
    Exponential: (_to_exponential, "Beta ContinuousBernoulli Gamma Pareto", {"Uniform": lambda p, q: p.low < 0}, "Gumbel Laplace Normal"),
    Gamma: (_to_gamma, "Beta Exponential Pareto", {"Uniform": lambda p, q: p.low < 0}, "Gumbel Laplace Normal"),
    Pareto: (
        _to_pareto, "", {"Pareto": lambda p, q: p.scale < q.scale, "Uniform": lambda p, q: p.low < q.scale},
        "Beta ContinuousBernoulli Exponential Gamma Gumbel Laplace Normal",
    ),
    Beta: (_to_beta, "", {"Uniform": lambda p, q: (p.high > 1) | (p.low < 0)}, "Exponential Gamma Gumbel Laplace Normal Pareto"),
    Uniform: (
        _to_uniform, "",
        dict.fromkeys(("Beta", "ContinuousBernoulli"), lambda p, q: (q.high < 1) | (q.low > 0))
        | {"Uniform": lambda p, q: (q.low > p.low) | (q.high < p.high)},
        "Exponential Gamma Gumbel Laplace Normal Pareto",
    ),
    ContinuousBernoulli: (
        _to_continuous_bernoulli, "Beta ContinuousBernoulli", {"Uniform": lambda p, q: (p.high > 1) | (p.low < 0)},
        "Exponential Gamma Gumbel Laplace Normal Pareto",
    ),
    Gumbel: (_to_gumbel, "Exponential Gamma Normal Uniform", {}, ""),
}  # fmt: skip
_BY_NAME = {cls.__name__: cls for cls in (Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Laplace, Normal, Pareto, Uniform)}


def _infinite(p: Distribution, q: Distribution) -> Tensor:
    shaped = p.mean if p.batch_shape else p.mean.reshape(())
    return shaped.new_full(tuple(p.batch_shape), math.inf)


def _limited(formula: Callable, excluded: Callable) -> Callable:
    return lambda p, q: _outside(formula(p, q), excluded(p, q))


for _q, (_formula, _everywhere, _limits, _never) in CROSS.items():
    for _name in _everywhere.split():
        register_kl(_BY_NAME[_name], _q)(_formula)
    for _name, _excluded in _limits.items():
        register_kl(_BY_NAME[_name], _q)(_limited(_formula, _excluded))
    for _name in _never.split():
        register_kl(_BY_NAME[_name], _q)(_infinite)

# -- pairs of one family -----------------------------------------------------------------------------------------------


@register_kl(Bernoulli, Bernoulli)
def _kl_bernoulli_bernoulli(p, q):
    softplus = lambda x: op("nn.functional.softplus", x)  # noqa: E731
    first = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    second = (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))
    return _outside(first, q.probs == 0).masked_fill(p.probs == 0, 0) + _outside(second, q.probs == 1).masked_fill(p.probs == 1, 0)


@register_kl(Binomial, Binomial)
def _kl_binomial_binomial(p, q):
    if bool((p.total_count < q.total_count).any()):
        raise NotImplementedError(
            "KL of Binomials: p may not have fewer trials (total_count) than q, for which there is no closed form here"
        )
    found = p.total_count * (p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p())
    return _outside(found, p.total_count > q.total_count)


@register_kl(Categorical, Categorical)
def _kl_categorical_categorical(p, q):
    terms = p.probs * (p.logits - q.logits)
    terms = terms.masked_fill((q.probs == 0).expand_as(terms), math.inf).masked_fill((p.probs == 0).expand_as(terms), 0)
    return terms.sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _kl_onehotcategorical_onehotcategorical(p, q):
    return _kl_categorical_categorical(p._categorical, q._categorical)


@register_kl(Beta, Beta)
def _kl_beta_beta(p, q):
    p_total, q_total = p.concentration1 + p.concentration0, q.concentration1 + q.concentration0
    first = q.concentration1.lgamma() + q.concentration0.lgamma() + p_total.lgamma()
    second = p.concentration1.lgamma() + p.concentration0.lgamma() + q_total.lgamma()
    one = (p.concentration1 - q.concentration1) * p.concentration1.digamma()
    zero = (p.concentration0 - q.concentration0) * p.concentration0.digamma()
    return first - second + one + zero + (q_total - p_total) * p_total.digamma()


@register_kl(Dirichlet, Dirichlet)
def _kl_dirichlet_dirichlet(p, q):
    a, b = p.concentration, q.concentration
    p_total = a.sum(-1)
    totals = p_total.lgamma() - b.sum(-1).lgamma()
    return totals - (a.lgamma() - b.lgamma()).sum(-1) + ((a - b) * (a.digamma() - p_total.digamma().unsqueeze(-1))).sum(-1)


@register_kl(Cauchy, Cauchy)
def _kl_cauchy_cauchy(p, q):
    return ((p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)).log() - (4 * p.scale * q.scale).log()


@register_kl(Exponential, Exponential)
def _kl_exponential_exponential(p, q):
    ratio = q.rate / p.rate
    return -ratio.log() + ratio - 1


@register_kl(Gamma, Gamma)
def _kl_gamma_gamma(p, q):
    a, b = p.concentration, q.concentration
    return b * (p.rate / q.rate).log() + b.lgamma() - a.lgamma() + (a - b) * a.digamma() + (q.rate - p.rate) * (a / p.rate)


@register_kl(Gumbel, Gumbel)
def _kl_gumbel_gumbel(p, q):
    ratio = p.scale / q.scale
    place = q.loc / q.scale - p.loc / q.scale  # divided before they are subtracted, as PyTorch rounds them
    return -ratio.log() - place + ratio * euler_constant + (place + (1 + ratio).lgamma()).exp() - (1 + euler_constant)


@register_kl(Geometric, Geometric)
def _kl_geometric_geometric(p, q):
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(HalfNormal, HalfNormal)
def _kl_halfnormal_halfnormal(p, q):
    return _kl_normal_normal(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _kl_laplace_laplace(p, q):
    ratio, distance = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + distance / q.scale + ratio * (-distance / p.scale).exp() - 1


@register_kl(Normal, Normal)
def _kl_normal_normal(p, q):
    ratio = (p.scale / q.scale).pow(2)
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).pow(2) - 1 - ratio.log())


@register_kl(Normal, Laplace)
def _kl_normal_laplace(p, q):
    """E |x - loc| of a normal number is that of a folded one."""
    distance = p.loc - q.loc
    ratio = distance / p.scale
    folded = math.sqrt(2 / math.pi) * p.scale * (-0.5 * ratio.pow(2)).exp() + distance * (math.sqrt(0.5) * ratio).erf()
    return (2 * q.scale).log() + folded / q.scale - p.entropy()


@register_kl(Poisson, Poisson)
def _kl_poisson_poisson(p, q):
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Bernoulli, Poisson)
def _kl_bernoulli_poisson(p, q):
    return -p.entropy() - (p.probs * q.rate.log() - q.rate)


@register_kl(Poisson, Bernoulli)
@register_kl(Poisson, Binomial)
def _kl_poisson_infinite(p, q):
    return _infinite(p, q)


@register_kl(MultivariateNormal, MultivariateNormal)
def _kl_multivariatenormal_multivariatenormal(p, q):
    _check_events(p, q, "Multivariate Normals")
    mine, other = p._unbroadcasted_scale_tril, q._unbroadcasted_scale_tril
    volume = _log_diagonal(other) - _log_diagonal(mine)
    distance = _batch_mahalanobis(other, q.loc - p.loc)
    return volume + 0.5 * (_squared(other, mine) + distance - p.event_shape[0])


def _squared(factor: Tensor, right: Tensor) -> Tensor:
    """The trace of (L L^T)^-1 A A^T, which is |L^-1 A|^2."""
    lead = broadcast_shapes(tuple(factor.shape[:-2]), tuple(right.shape[:-2]))
    return _solve(factor.expand((*lead, -1, -1)), right.expand((*lead, -1, -1))).square().sum((-2, -1))


def _check_events(p, q, what: str) -> None:
    if p.event_shape != q.event_shape:
        raise ValueError(
            f"KL-divergence between two {what} with different event shapes cannot be computed: {p.event_shape}, {q.event_shape}"
        )


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _kl_lowrank_lowrank(p, q):
    _check_events(p, q, "Low Rank Multivariate Normals")
    volume = q._log_determinant() - p._log_determinant()
    distance = low_rank_mahalanobis(q._unbroadcasted_cov_factor, q._unbroadcasted_cov_diag, q.loc - p.loc, q._capacitance_tril)
    # The trace of (W W^T + D)^-1 (V V^T + E), term by term.
    weighted = q._unbroadcasted_cov_factor.mT / q._unbroadcasted_cov_diag.unsqueeze(-2)
    a = _solve(q._capacitance_tril, weighted)
    one = (p._unbroadcasted_cov_diag / q._unbroadcasted_cov_diag).sum(-1)
    two = (p._unbroadcasted_cov_factor * q._unbroadcasted_cov_diag.rsqrt().unsqueeze(-1)).square().sum((-2, -1))
    three = (a * p._unbroadcasted_cov_diag.sqrt().unsqueeze(-2)).square().sum((-2, -1))
    four = (a @ p._unbroadcasted_cov_factor).square().sum((-2, -1))
    return 0.5 * (volume + distance + (one + two - three - four) - p.event_shape[0])


@register_kl(MultivariateNormal, LowRankMultivariateNormal)
def _kl_multivariatenormal_lowrank(p, q):
    _check_events(p, q, "(Low Rank) Multivariate Normals")
    volume = low_rank_log_determinant(q._unbroadcasted_cov_diag, q._capacitance_tril) - 2 * _log_diagonal(p._unbroadcasted_scale_tril)
    distance = low_rank_mahalanobis(q._unbroadcasted_cov_factor, q._unbroadcasted_cov_diag, q.loc - p.loc, q._capacitance_tril)
    a = _solve(q._capacitance_tril, q._unbroadcasted_cov_factor.mT / q._unbroadcasted_cov_diag.unsqueeze(-2))
    one = (p._unbroadcasted_scale_tril * q._unbroadcasted_cov_diag.rsqrt().unsqueeze(-1)).square().sum((-2, -1))
    two = (a @ p._unbroadcasted_scale_tril).square().sum((-2, -1))
    return 0.5 * (volume + distance + (one - two) - p.event_shape[0])


@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _kl_lowrank_multivariatenormal(p, q):
    _check_events(p, q, "(Low Rank) Multivariate Normals")
    volume = 2 * _log_diagonal(q._unbroadcasted_scale_tril) - p._log_determinant()
    distance = _batch_mahalanobis(q._unbroadcasted_scale_tril, q.loc - p.loc)
    trace = _squared(q._unbroadcasted_scale_tril, p._unbroadcasted_cov_factor)
    trace = trace + _squared(q._unbroadcasted_scale_tril, p._unbroadcasted_cov_diag.sqrt().diag_embed())
    return 0.5 * (volume + distance + trace - p.event_shape[0])


# -- what holds for many families ----------------------------------------------------------------------------------------


@register_kl(ExponentialFamily, ExponentialFamily)
def _kl_expfamily_expfamily(p, q):
    """Bregman's divergence of the log normalizers."""
    if type(p) is not type(q):
        names = f"{type(p).__name__} and {type(q).__name__}"
        raise NotImplementedError(f"KL of exponential families: p and q must be of one family, but found {names}")
    given = [n.detach().requires_grad_() for n in p._natural_params]
    with modes.enable_grad():
        normalizer = p._log_normalizer(*given)
        slopes = grad(normalizer.sum(), given, create_graph=True)
    found = q._log_normalizer(*q._natural_params) - normalizer
    for mine, other, slope in zip(given, q._natural_params, slopes, strict=True):
        found = found - sum_rightmost((other - mine) * slope, len(q.event_shape))
    return found


@register_kl(TransformedDistribution, TransformedDistribution)
def _kl_transformed_transformed(p, q):
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError("KL between distributions with different transforms is not implemented: they live in different spaces")
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Independent, Independent)
def _kl_independent_independent(p, q):
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("KL between Independent distributions with different reinterpreted_batch_ndims is not implemented")
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)
