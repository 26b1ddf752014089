"""Distributions: random variables with densities, draws, moments, transforms and divergences."""

# ruff: noqa: F401 - names are imported to be public
import sys as _sys

from flambeau.distributions import (
    choices,
    constraint_registry,
    constraints,
    counting,
    derived,
    distribution,
    kl,
    location_scale,
    positive,
    transforms,
    utils,
    vectors,
    wrappers,
)
from flambeau.distributions.choices import Categorical, Multinomial, OneHotCategorical, OneHotCategoricalStraightThrough
from flambeau.distributions.constraint_registry import biject_to, transform_to
from flambeau.distributions.counting import Bernoulli, Binomial, ContinuousBernoulli, Geometric, NegativeBinomial, Poisson
from flambeau.distributions.derived import (
    Gumbel,
    HalfCauchy,
    HalfNormal,
    InverseGamma,
    Kumaraswamy,
    LogisticNormal,
    LogNormal,
    Pareto,
    RelaxedBernoulli,
    RelaxedOneHotCategorical,
    TransformedDistribution,
    Weibull,
)
from flambeau.distributions.distribution import Distribution, ExponentialFamily
from flambeau.distributions.kl import kl_divergence, register_kl
from flambeau.distributions.location_scale import Cauchy, GeneralizedPareto, Laplace, Normal, StudentT, Uniform, VonMises
from flambeau.distributions.positive import Beta, Chi2, Dirichlet, Exponential, FisherSnedecor, Gamma
from flambeau.distributions.transforms import *
from flambeau.distributions.vectors import LKJCholesky, LowRankMultivariateNormal, MultivariateNormal, Wishart
from flambeau.distributions.wrappers import Independent, MixtureSameFamily

__all__ = [
    "Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy", "Chi2", "ContinuousBernoulli", "Dirichlet", "Distribution", "Exponential",
    "ExponentialFamily", "FisherSnedecor", "Gamma", "GeneralizedPareto", "Geometric", "Gumbel", "HalfCauchy", "HalfNormal", "Independent",
    "InverseGamma", "Kumaraswamy", "LKJCholesky", "Laplace", "LogNormal", "LogisticNormal", "LowRankMultivariateNormal", "MixtureSameFamily",
    "Multinomial", "MultivariateNormal", "NegativeBinomial", "Normal", "OneHotCategorical", "OneHotCategoricalStraightThrough", "Pareto",
    "Poisson", "RelaxedBernoulli", "RelaxedOneHotCategorical", "StudentT", "TransformedDistribution", "Uniform", "VonMises", "Weibull", "Wishart",
    "biject_to", "kl_divergence", "register_kl", "transform_to", *transforms.__all__,
]  # fmt: skip

# PyTorch has a file for each class, and programs import from them: torch.distributions.normal.Normal.
for _room, _files in {
    choices: "categorical multinomial one_hot_categorical",
    counting: "bernoulli binomial continuous_bernoulli geometric negative_binomial poisson",
    derived: """gumbel half_cauchy half_normal inverse_gamma kumaraswamy log_normal logistic_normal pareto relaxed_bernoulli relaxed_categorical
        transformed_distribution weibull""",
    distribution: "exp_family",
    location_scale: "cauchy generalized_pareto laplace normal studentT uniform von_mises",
    positive: "beta chi2 dirichlet exponential fishersnedecor gamma",
    vectors: "lkj_cholesky lowrank_multivariate_normal multivariate_normal wishart",
    wrappers: "independent mixture_same_family",
}.items():
    for _file in _files.split():
        _sys.modules[f"{__name__}.{_file}"] = globals()[_file] = _room
