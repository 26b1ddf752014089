"""Ready-made parametrizations: orthogonal, weight_norm and spectral_norm."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

from flambeau import dtypes, modes
from flambeau.eager import bind
from flambeau.nn.modules.module import Module
from flambeau.nn.utils import parametrize
from flambeau.nn.utils.spectral_norm import normalize
from flambeau.nn.utils.weight_norm import norm_except, weight_of
from flambeau.tensor import Tensor
from flambeau.tensor.making import factories, random_factories

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


def _op(name: str) -> Any:
    return bind.functions[name]


# -- orthogonal ----------------------------------------------------------------------------------------------------


class _OrthMaps(Enum):
    matrix_exp = auto()
    cayley = auto()
    householder = auto()


def orthogonal(module: Module, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True) -> Module:
    """Keep a matrix (or batch of matrices) orthogonal, or with orthonormal rows or columns if it is not square.

    orthogonal_map      how an unconstrained matrix becomes an orthogonal one: "matrix_exp" and "cayley" from a skew-symmetric A = X - Xᵀ
                        (exp(A), or (1 - A/2)⁻¹(1 + A/2)), "householder" as a product of reflections
    use_trivialization  multiply by the present value, so that training starts near the identity of the map
    """
    weight = _tensor_of(module, name)
    if weight.ndim < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Found {weight.ndim} dimensions.")
    if orthogonal_map is None:
        orthogonal_map = "matrix_exp" if weight.size(-2) == weight.size(-1) or weight.is_complex() else "householder"
    found = getattr(_OrthMaps, orthogonal_map, None)
    if found is None:
        raise ValueError(f'orthogonal_map has to be one of the names "matrix_exp", "cayley", "householder", found {orthogonal_map}')
    made = _Orthogonal(weight, found, use_trivialization=use_trivialization)
    return parametrize.register_parametrization(module, name, made, unsafe=True)


class _Orthogonal(Module):
    base: Tensor

    def __init__(self, weight: Tensor, orthogonal_map: _OrthMaps, *, use_trivialization: bool = True) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map == _OrthMaps.householder:
            raise ValueError("A householder parametrization does not support complex tensors: matrix_exp and cayley do.")
        self.shape, self.orthogonal_map = weight.shape, orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        wide = X.size(-2) < X.size(-1)
        tall = X.mT if wide else X  # (n, k), n >= k
        Q = _reflected(tall) if self.orthogonal_map == _OrthMaps.householder else _rotated(tall, self.orthogonal_map)
        if hasattr(self, "base"):
            Q = self.base @ Q
        return Q.mT if wide else Q

    @modes.no_grad()
    def right_inverse(self, Q: Tensor) -> Tensor:
        if Q.shape != self.shape:
            raise ValueError(f"Expected a matrix, or matrices of shape {self.shape}, found {Q.shape}.")
        start = Q
        wide = Q.size(-2) < Q.size(-1)
        Q = Q.mT if wide else Q
        n, k = Q.size(-2), Q.size(-1)
        if not hasattr(self, "base"):
            if self.orthogonal_map != _OrthMaps.householder:
                which = "the matrix exponential or the Cayley parametrizations with use_trivialization=False"
                raise NotImplementedError(f"It is not possible to assign to {which}.")
            A, tau = Q.geqrf()
            signs = A.diagonal(dim1=-2, dim2=-1)
            signs.sign_()
            signs[tau == 0.0] *= -1  # a reflection that does nothing changes a sign in LAPACK's convention
            return A.mT if wide else A
        if n == k:
            Q = Q.clone() if _is_orthogonal(Q) else _make_orthogonal(Q)
        else:
            fill = random_factories.randn(*Q.shape[:-2], n, n - k, dtype=Q.dtype, device=Q.device)
            Q = _make_orthogonal(_op("cat")([Q, fill], dim=-1))
        self.base = Q
        # What is stored maps to the identity: skew-symmetric part zero, all signs -1 for Householder's reflections of length zero.
        identity = factories.zeros_like(start)
        identity.diagonal(dim1=-2, dim2=-1).fill_(-1.0)
        return identity


def _reflected(X: Tensor) -> Tensor:
    """The product of k reflections, one by each column of X below the diagonal; the diagonal holds signs, which are not learned. (n, k) -> (n, k)"""
    vectors, signs = X.tril(-1), X.diagonal(dim1=-2, dim2=-1).int()
    scale = 2 / (1 + vectors.square().sum(-2))
    return _op("linalg.householder_product")(vectors, scale) * signs.unsqueeze(-2)


def _rotated(X: Tensor, orthogonal_map: _OrthMaps) -> Tensor:
    """The first k columns of a rotation by the skew-symmetric matrix that has X below the diagonal. (n, k) -> (n, k)"""
    n, k = X.shape[-2:]
    lower = _op("nn.functional.pad")(X.tril(), (0, n - k))
    skew = lower - lower.mH
    if orthogonal_map == _OrthMaps.matrix_exp:
        return _op("matrix_exp")(skew)[..., :k]
    half, one = skew / 2, factories.eye(n, dtype=skew.dtype, device=skew.device)
    return _op("linalg.solve")(one - half, (one + half)[..., :k])


def _is_orthogonal(Q: Tensor, eps: float | None = None) -> bool:
    n, k = Q.size(-2), Q.size(-1)
    eps = 10.0 * n * dtypes.finfo(Q.dtype).eps if eps is None else eps
    return _op("allclose")(Q.mH @ Q, factories.eye(k, dtype=Q.dtype, device=Q.device), atol=eps)


def _make_orthogonal(A: Tensor) -> Tensor:
    """The orthogonal factor of A whose triangular one has a positive diagonal."""
    X, tau = A.geqrf()
    Q = _op("linalg.householder_product")(X, tau)
    return Q * X.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


# -- weight_norm ---------------------------------------------------------------------------------------------------


class _WeightNorm(Module):
    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return weight_of(weight_g, weight_v, self.dim)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return norm_except(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """w = g v / ‖v‖: length (original0) and direction (original1) of a parameter are learned apart. The norm keeps dimension `dim`."""
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def rename(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs) -> None:
        """Checkpoints of the older weight_norm have weight_g and weight_v."""
        old = [f"{prefix}{name}_g", f"{prefix}{name}_v"]
        if all(key in state_dict for key in old):
            for i, key in enumerate(old):
                state_dict[f"{prefix}parametrizations.{name}.original{i}"] = state_dict.pop(key)

    module._register_load_state_dict_pre_hook(rename)
    return module


# -- spectral_norm -------------------------------------------------------------------------------------------------


class _SpectralNorm(Module):
    _u: Tensor
    _v: Tensor

    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        ndim = weight.ndim
        if not -ndim <= dim < ndim:
            raise IndexError(f"Dimension out of range (expected to be in range of [-{ndim}, {ndim - 1}] but got {dim})")
        if n_power_iterations <= 0:
            raise ValueError(f"Expected n_power_iterations to be positive, found {n_power_iterations}")
        self.dim, self.eps = dim % ndim, eps
        if ndim > 1:
            self.n_power_iterations = n_power_iterations
            matrix = self._reshape_weight_to_matrix(weight).detach()
            h, w = matrix.size()
            u, v = matrix.new_empty(h).normal_(0, 1), matrix.new_empty(w).normal_(0, 1)
            self.register_buffer("_u", normalize(u, eps))
            self.register_buffer("_v", normalize(v, eps))
            self._power_method(matrix, 15)  # close to the singular vectors before the first use

    def _reshape_weight_to_matrix(self, weight: Tensor) -> Tensor:
        if self.dim != 0:
            weight = weight.permute(self.dim, *[d for d in range(weight.dim()) if d != self.dim])
        return weight.flatten(1)

    @modes.no_grad()
    def _power_method(self, weight_mat: Tensor, n_power_iterations: int) -> None:
        for _ in range(n_power_iterations):
            # In place, so that replicas and checkpoints see them.
            self._u.copy_(normalize(weight_mat.mv(self._v), self.eps))
            self._v.copy_(normalize(weight_mat.mH.mv(self._u), self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return normalize(weight, self.eps)
        matrix = self._reshape_weight_to_matrix(weight)
        if self.training:
            self._power_method(matrix, self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()  # the next forward changes them, before this one's backward perhaps
        return weight / u.vdot(matrix.mv(v))

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def spectral_norm(module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None) -> Module:
    """w / s, s the largest singular value of w, followed by power iteration: one step per forward in training."""
    weight = _tensor_of(module, name)
    if dim is None:
        transposed = any(base.__name__ in ("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d") for base in type(module).__mro__)
        dim = 1 if transposed else 0
    return parametrize.register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))


def _tensor_of(module: Module, name: str) -> Tensor:
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer '{name}'")
    return weight
