"""Distributions of vectors and matrices: multivariate normal, of low rank too, Wishart, and correlation factors."""

from __future__ import annotations

import math
import warnings

from flambeau import dtypes
from flambeau.distributions import constraints
from flambeau.distributions.distribution import Distribution, ExponentialFamily
from flambeau.distributions.positive import Beta, Chi2
from flambeau.distributions.utils import lazy_property, op, standard_normal
from flambeau.tensor import Size, Tensor
from flambeau.tensor.making import factories
from flambeau.tensor.methods.queries import broadcast_shapes

__all__ = ["LKJCholesky", "LowRankMultivariateNormal", "MultivariateNormal", "Wishart"]

LOG_2PI = math.log(2 * math.pi)


def _batch_mv(matrix: Tensor, vector: Tensor) -> Tensor:
    """Matrices times vectors. (*, n, m), (*, m) -> (*, n)"""
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def _batch_mahalanobis(factor: Tensor, x: Tensor) -> Tensor:
    """x^T (L L^T)^-1 x, which is |L^-1 x|^2. (*, n, n), (*, n) -> (*)"""
    return _solve(factor, x.unsqueeze(-1)).square().sum((-2, -1)) if factor.dim() == 2 and x.dim() == 1 else _each(factor, x)


def _each(factor: Tensor, x: Tensor) -> Tensor:
    shape = broadcast_shapes(tuple(factor.shape[:-2]), tuple(x.shape[:-1]))
    if factor.dim() == 2:  # one factor for all: one triangular system with many right sides
        flat = x.reshape(-1, x.shape[-1]).mT
        return _solve(factor, flat).square().sum(0).reshape(x.shape[:-1])
    n = x.shape[-1]
    return _solve(factor.expand((*shape, n, n)), x.expand((*shape, n)).unsqueeze(-1)).square().sum((-2, -1))


def _solve(factor: Tensor, right: Tensor) -> Tensor:
    return op("linalg.solve_triangular", factor, right, upper=False)


def _precision_to_scale_tril(precision: Tensor) -> Tensor:
    """The Cholesky factor of the inverse, without inverting: flip, factor, flip, and one triangular system."""
    flipped = op("flip", op("linalg.cholesky", op("flip", precision, (-2, -1))), (-2, -1))
    inverse = flipped.mT
    identity = factories.eye(precision.shape[-1], dtype=precision.dtype, device=precision.device)
    return _solve(inverse, identity.expand_as(precision) if precision.dim() > 2 else identity)


def _log_diagonal(factor: Tensor) -> Tensor:
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


class _WithCovariance(Distribution):
    """What is given as a covariance, its inverse (the precision) or its Cholesky factor, and computed from one another."""

    _unbroadcasted_scale_tril: Tensor

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower Cholesky factor of the covariance."""
        return self._unbroadcasted_scale_tril.expand(self._matrix_shape())

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """L L^T."""
        factor = self._unbroadcasted_scale_tril
        return (factor @ factor.mT).expand(self._matrix_shape())

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        return op("cholesky_inverse", self._unbroadcasted_scale_tril).expand(self._matrix_shape())

    def _matrix_shape(self) -> Size:
        return self._batch_shape + self._event_shape[-1:] + self._event_shape[-1:]

    def _factor(self, covariance, precision, scale_tril) -> Tensor:
        if scale_tril is not None:
            return scale_tril
        return op("linalg.cholesky", covariance) if covariance is not None else _precision_to_scale_tril(precision)


MATRICES = ("covariance_matrix", "scale_tril", "precision_matrix")


class MultivariateNormal(_WithCovariance):
    """exp(-(x - loc)^T covariance^-1 (x - loc) / 2) / sqrt(det(2 pi covariance)). loc (*, n), matrices (*, n, n)"""

    arg_constraints = {
        "loc": constraints.real_vector, "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite, "scale_tril": constraints.lower_cholesky,
    }  # fmt: skip
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, loc, covariance_matrix=None, precision_matrix=None, scale_tril=None, validate_args=None):
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        given = {"covariance_matrix": covariance_matrix, "scale_tril": scale_tril, "precision_matrix": precision_matrix}
        chosen = [(name, m) for name, m in given.items() if m is not None]
        if len(chosen) != 1:
            raise ValueError(f"Exactly one of {', '.join(given)} must be given, but found {len(chosen)}")
        name, matrix = chosen[0]
        if matrix.dim() < 2:
            raise ValueError(f"{name} matrix must be at least two-dimensional, (*, n, n), but it has shape {tuple(matrix.shape)}")
        batch = broadcast_shapes(tuple(matrix.shape[:-2]), tuple(loc.shape[:-1]))
        setattr(self, name, matrix.expand((*batch, -1, -1)))
        self.loc = loc.expand((*batch, -1))
        super().__init__(batch, self.loc.shape[-1:], validate_args=validate_args)
        self._unbroadcasted_scale_tril = self._factor(covariance_matrix, precision_matrix, scale_tril)

    def expand(self, batch_shape, _instance=None):
        new = self._get_checked_instance(MultivariateNormal, _instance)
        shape = Size(batch_shape)
        new.loc = self.loc.expand(shape + self.event_shape)
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril
        for name in MATRICES:
            if name in self.__dict__:
                setattr(new, name, getattr(self, name).expand(shape + self.event_shape + self.event_shape))
        return self._as_expanded(new, shape)

    mean = property(lambda self: self.loc)
    mode = mean

    @property
    def variance(self):
        return self._unbroadcasted_scale_tril.pow(2).sum(-1).expand(self._batch_shape + self._event_shape)

    def rsample(self, sample_shape=Size()):  # noqa: B008
        eps = standard_normal(self._extended_shape(sample_shape), self.loc.dtype, self.loc.device)
        return self.loc + _batch_mv(self._unbroadcasted_scale_tril, eps)

    def log_prob(self, value):
        self._checked(value)
        distance = _batch_mahalanobis(self._unbroadcasted_scale_tril, value - self.loc)
        return -0.5 * (self._event_shape[0] * LOG_2PI + distance) - _log_diagonal(self._unbroadcasted_scale_tril)

    def entropy(self):
        found = 0.5 * self._event_shape[0] * (1.0 + LOG_2PI) + _log_diagonal(self._unbroadcasted_scale_tril)
        return found if len(self._batch_shape) == 0 else found.expand(self._batch_shape)


class LowRankMultivariateNormal(Distribution):
    """A multivariate normal distribution with covariance W W^T + D: a few factors, and what each entry has for itself.

    loc (*, n), cov_factor W (*, n, r), cov_diag D (*, n). Everything goes through the r x r capacitance matrix I + W^T D^-1 W.
    """

    arg_constraints = {
        "loc": constraints.real_vector, "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }  # fmt: skip
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, loc, cov_factor, cov_diag, validate_args=None):
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        event = loc.shape[-1:]
        if cov_factor.dim() < 2:
            raise ValueError(f"cov_factor must be at least two-dimensional, (*, n, rank), but it has shape {tuple(cov_factor.shape)}")
        if cov_factor.shape[-2:-1] != event:
            raise ValueError(
                f"cov_factor must be a batch of matrices ({event[0]}, rank), as loc has {event[0]} entries, but it has shape "
                f"{tuple(cov_factor.shape)}"
            )
        if cov_diag.shape[-1:] != event:
            raise ValueError(f"cov_diag must be a batch of vectors of {event[0]} entries, as loc, but it has shape {tuple(cov_diag.shape)}")
        try:
            batch = broadcast_shapes(tuple(loc.shape[:-1]), tuple(cov_factor.shape[:-2]), tuple(cov_diag.shape[:-1]))
        except RuntimeError as problem:
            found = (
                f"Incompatible batch shapes: {tuple(loc.shape)} of loc, {tuple(cov_factor.shape)} of cov_factor, "
                f"{tuple(cov_diag.shape)} of cov_diag"
            )
            raise ValueError(found) from problem
        self.loc, self.cov_diag = loc.expand((*batch, -1)), cov_diag.expand((*batch, -1))
        self.cov_factor = cov_factor.expand((*batch, -1, -1))
        super().__init__(batch, event, validate_args=validate_args)
        self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag = cov_factor, cov_diag
        weighted = cov_factor.mT / cov_diag.unsqueeze(-2)
        rank = cov_factor.shape[-1]
        inner = weighted @ cov_factor + factories.eye(rank, dtype=loc.dtype, device=loc.device)
        self._capacitance_tril = op("linalg.cholesky", inner)

    def expand(self, batch_shape, _instance=None):
        new = self._get_checked_instance(LowRankMultivariateNormal, _instance)
        shape = Size(batch_shape)
        whole = shape + self.event_shape
        new.loc, new.cov_diag = self.loc.expand(whole), self.cov_diag.expand(whole)
        new.cov_factor = self.cov_factor.expand(whole + self.cov_factor.shape[-1:])
        for name in ("_unbroadcasted_cov_factor", "_unbroadcasted_cov_diag", "_capacitance_tril"):
            setattr(new, name, getattr(self, name))
        return self._as_expanded(new, shape)

    mean = property(lambda self: self.loc)
    mode = mean

    @lazy_property
    def variance(self):
        return (self._unbroadcasted_cov_factor.pow(2).sum(-1) + self._unbroadcasted_cov_diag).expand(self._batch_shape + self._event_shape)

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower Cholesky factor of the covariance: R times that of I + R^-1 W W^T R^-1, R the root of D."""
        n = self._event_shape[0]
        root = self._unbroadcasted_cov_diag.sqrt().unsqueeze(-1)
        scaled = self._unbroadcasted_cov_factor / root
        inner = scaled @ scaled.mT + factories.eye(n, dtype=scaled.dtype, device=scaled.device)
        return (root * op("linalg.cholesky", inner)).expand(self._batch_shape + self._event_shape + self._event_shape)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """W W^T + D."""
        found = self._unbroadcasted_cov_factor @ self._unbroadcasted_cov_factor.mT + self._unbroadcasted_cov_diag.diag_embed()
        return found.expand(self._batch_shape + self._event_shape + self._event_shape)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """Its inverse, by Woodbury's identity."""
        weighted = self._unbroadcasted_cov_factor.mT / self._unbroadcasted_cov_diag.unsqueeze(-2)
        a = _solve(self._capacitance_tril, weighted)
        found = self._unbroadcasted_cov_diag.reciprocal().diag_embed() - a.mT @ a
        return found.expand(self._batch_shape + self._event_shape + self._event_shape)

    def rsample(self, sample_shape=Size()):  # noqa: B008
        shape = self._extended_shape(sample_shape)
        of_factors = standard_normal(shape[:-1] + self.cov_factor.shape[-1:], self.loc.dtype, self.loc.device)
        own = standard_normal(shape, self.loc.dtype, self.loc.device)
        return self.loc + _batch_mv(self._unbroadcasted_cov_factor, of_factors) + self._unbroadcasted_cov_diag.sqrt() * own

    def _log_determinant(self) -> Tensor:
        return low_rank_log_determinant(self._unbroadcasted_cov_diag, self._capacitance_tril)

    def log_prob(self, value):
        self._checked(value)
        distance = low_rank_mahalanobis(
            self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag, value - self.loc, self._capacitance_tril
        )
        return -0.5 * (self._event_shape[0] * LOG_2PI + self._log_determinant() + distance)

    def entropy(self):
        found = 0.5 * (self._event_shape[0] * (1.0 + LOG_2PI) + self._log_determinant())
        return found if len(self._batch_shape) == 0 else found.expand(self._batch_shape)


def low_rank_log_determinant(diagonal: Tensor, capacitance_tril: Tensor) -> Tensor:
    """log det(W W^T + D), by the determinant lemma."""
    return 2 * _log_diagonal(capacitance_tril) + diagonal.log().sum(-1)


def low_rank_mahalanobis(factor: Tensor, diagonal: Tensor, x: Tensor, capacitance_tril: Tensor) -> Tensor:
    """x^T (W W^T + D)^-1 x, by Woodbury's identity."""
    weighted = factor.mT / diagonal.unsqueeze(-2)
    return (x.pow(2) / diagonal).sum(-1) - _batch_mahalanobis(capacitance_tril, _batch_mv(weighted, x))


class Wishart(_WithCovariance, ExponentialFamily):
    """The sum of df products x x^T of normal vectors: a random covariance matrix. df (*), matrices (*, n, n), df > n - 1"""

    support = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0

    @property
    def arg_constraints(self):  # type: ignore[override]
        return {
            "covariance_matrix": constraints.positive_definite, "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky, "df": constraints.greater_than(self.event_shape[-1] - 1),
        }  # fmt: skip

    def __init__(self, df, covariance_matrix=None, precision_matrix=None, scale_tril=None, validate_args=None):
        given = {"covariance_matrix": covariance_matrix, "scale_tril": scale_tril, "precision_matrix": precision_matrix}
        chosen = [(name, m) for name, m in given.items() if m is not None]
        if len(chosen) != 1:
            raise ValueError("Expected only one of covariance_matrix or precision_matrix or scale_tril.")
        name, matrix = chosen[0]
        if matrix.dim() < 2:
            raise ValueError(f"{name} must be at least two-dimensional, (*, n, n), but it has shape {tuple(matrix.shape)}")
        df = df if isinstance(df, Tensor) else factories.tensor(float(df), dtype=matrix.dtype, device=matrix.device)
        batch = Size(broadcast_shapes(tuple(matrix.shape[:-2]), tuple(df.shape)))
        event = matrix.shape[-2:]
        self.df = df.expand(batch)
        setattr(self, name, matrix.expand((*batch, -1, -1)))
        if bool((self.df <= event[-1] - 1).any()):
            raise ValueError(f"Wishart: df must exceed {event[-1] - 1}, the size of the matrix less one, but found {df}")
        super().__init__(batch, event, validate_args=validate_args)
        self._unbroadcasted_scale_tril = self._factor(covariance_matrix, precision_matrix, scale_tril)
        steps = factories.tensor([float(i) for i in range(event[-1])], dtype=self.df.dtype, device=self.df.device)
        self._dist_chi2 = Chi2(df=self.df.unsqueeze(-1) - steps.expand((*batch, -1)))

    def expand(self, batch_shape, _instance=None):
        new = self._get_checked_instance(Wishart, _instance)
        shape = Size(batch_shape)
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril.expand(shape + self.event_shape)
        new.df = self.df.expand(shape)
        for name in MATRICES:
            if name in self.__dict__:
                setattr(new, name, getattr(self, name).expand(shape + self.event_shape))
        new._dist_chi2 = self._dist_chi2.expand(shape + self.event_shape[-1:])
        return self._as_expanded(new, shape)

    mean = property(lambda self: self.df.view((*self._batch_shape, 1, 1)) * self.covariance_matrix)

    @property
    def mode(self):
        factor = self.df - self.covariance_matrix.shape[-1] - 1
        return factor.masked_fill(factor <= 0, math.nan).view((*self._batch_shape, 1, 1)) * self.covariance_matrix

    @property
    def variance(self):
        v = self.covariance_matrix
        diagonal = v.diagonal(dim1=-2, dim2=-1)
        return self.df.view((*self._batch_shape, 1, 1)) * (v.pow(2) + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    def _bartlett_sampling(self, sample_shape=Size()) -> Tensor:  # noqa: B008
        """L A A^T L^T, A lower triangular with normal numbers below roots of chi-squared ones (M. S. Bartlett, 1933)."""
        n = self._event_shape[-1]
        noise = self._dist_chi2.rsample(sample_shape).sqrt().diag_embed()
        row, column = factories.tril_indices(n, n, offset=-1)
        lower = standard_normal(Size(sample_shape) + self._batch_shape + (n * (n - 1) // 2,), noise.dtype, noise.device)
        noise[..., row, column] = lower
        chol = self._unbroadcasted_scale_tril @ noise
        return chol @ chol.mT

    def rsample(self, sample_shape=Size(), max_try_correction=None):  # noqa: B008
        """Draws; those that rounding has made singular are drawn again, a few times.

        PyTorch takes good first draws for singular ones, and draws them again. So do we, to give its numbers for its seeds.
        """
        found = self._bartlett_sampling(Size(sample_shape))
        again = self._any_of_batch(self.support.check(found))
        for turn in range(10 if max_try_correction is None else max_try_correction):
            if not bool(again.any()):
                break
            if turn:
                warnings.warn("Singular sample detected.", stacklevel=2)
            fresh = self._bartlett_sampling((int(again.sum()),))
            found[again] = fresh
            drawn, again = again, again.clone()  # backward needs the places that were written to
            again[drawn] = self._any_of_batch(~self.support.check(fresh))
        return found

    def _any_of_batch(self, answers: Tensor) -> Tensor:
        """Whether any distribution of the batch says so, for each draw."""
        dims = tuple(range(-len(self._batch_shape), 0))
        return answers.amax(dims) if dims else answers

    def log_prob(self, value):
        self._checked(value)
        n, factor = self._event_shape[-1], self._unbroadcasted_scale_tril
        nu = self.df
        normalizer = nu * (_log_diagonal(factor) + 0.5 * n * math.log(2)) + op("special.multigammaln", nu / 2, n)
        inside = op("cholesky_solve", value, factor).diagonal(dim1=-2, dim2=-1).sum(-1)
        return -normalizer + 0.5 * (nu - n - 1) * op("linalg.slogdet", value).logabsdet - 0.5 * inside

    def entropy(self):
        n, factor, nu = self._event_shape[-1], self._unbroadcasted_scale_tril, self.df
        steps = factories.tensor([float(i) for i in range(n)], dtype=nu.dtype, device=nu.device)
        digammas = ((nu.unsqueeze(-1) - steps) / 2).digamma().sum(-1)
        first = (n + 1) * (_log_diagonal(factor) + 0.5 * n * math.log(2))
        return first + op("special.multigammaln", nu / 2, n) - 0.5 * (nu - n - 1) * digammas + 0.5 * nu * n

    @property
    def _natural_params(self):
        return 0.5 * (self.df - self._event_shape[-1] - 1), -0.5 * self.precision_matrix

    def _log_normalizer(self, x, y):
        n = self._event_shape[-1]
        half = x + 0.5 * (n + 1)  # of the degrees of freedom
        return half * (n * math.log(2) - op("linalg.slogdet", -2 * y).logabsdet) + op("special.multigammaln", half, n)


class LKJCholesky(Distribution):
    """Cholesky factors of correlation matrices, with probability det(matrix)^(concentration - 1).

    Drawn by the onion method: D. Lewandowski, D. Kurowicka, H. Joe, "Generating random correlation matrices", 2009.
    """

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(self, dim, concentration=1.0, validate_args=None):
        if dim < 2:
            raise ValueError(f"LKJCholesky: correlation matrices begin at 2 x 2, but dim is {dim}")
        self.dim = dim
        self.concentration = concentration if isinstance(concentration, Tensor) else factories.tensor(float(concentration))
        batch = self.concentration.size()
        marginal = self.concentration + 0.5 * (dim - 2)
        offset = factories.tensor(
            [0.0, *[float(i) for i in range(dim - 1)]], dtype=self.concentration.dtype, device=self.concentration.device
        )
        self._beta = Beta(offset + 0.5, marginal.unsqueeze(-1) - 0.5 * offset)
        super().__init__(batch, Size((dim, dim)), validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        new = self._get_checked_instance(LKJCholesky, _instance)
        shape = Size(batch_shape)
        new.dim, new.concentration = self.dim, self.concentration.expand(shape)
        new._beta = self._beta.expand((*shape, self.dim))
        return self._as_expanded(new, shape)

    def sample(self, sample_shape=Size()):  # noqa: B008
        y = self._beta.sample(sample_shape).unsqueeze(-1)
        normal = standard_normal(self._extended_shape(sample_shape), y.dtype, y.device).tril(-1)
        directions = normal / normal.norm(dim=-1, keepdim=True)
        directions[..., 0, :].fill_(0.0)
        w = y.sqrt() * directions
        rest = (1 - (w**2).sum(-1)).clamp(min=dtypes.finfo(w.dtype).tiny).sqrt()
        return w + rest.diag_embed()

    def log_prob(self, value):
        self._checked(value)
        n = self.dim
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        order = factories.tensor([float(i) for i in range(2, n + 1)], dtype=value.dtype, device=value.device)
        order = 2 * (self.concentration - 1).unsqueeze(-1) + n - order
        alpha = self.concentration + 0.5 * (n - 1)
        constant = 0.5 * (n - 1) * math.log(math.pi) + op("mvlgamma", alpha - 0.5, n - 1) - alpha.lgamma() * (n - 1)
        return (order * diagonal.log()).sum(-1) - constant
