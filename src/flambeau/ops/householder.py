"""Householder reflections: the form in which QR is computed. geqrf, householder_product (orgqr), ormqr.

A reflection is I - tau v v^H. LAPACK packs vectors v_1, ..., v_k as columns below the diagonal of one matrix, each with a 1 on the
diagonal and zeros above that are not stored. Their product is written with matrix products (Schreiber and Van Loan, 1989):

    H_1 H_2 ... H_k = I - V T V^H,   T upper triangular,   T = (I + D S)^-1 D,   D = diag(tau),   S = the strict upper triangle of V^H V

so that it runs at the speed of a product, and its derivative is that of products and one triangular system.
"""

from __future__ import annotations

from flambeau import dtypes
from flambeau.kernels.linear_algebra import matrices
from flambeau.ops.declare import composite
from flambeau.ops.matrix import adjoint, check_float, check_matrices, check_same_dtype, from_lapack, identity_like
from flambeau.ops.solvers import _solve_triangular, stored_by_columns


@from_lapack("geqrf", "M N, K", method=True, returns="a tau", integers=NotImplementedError, autocast="cpu float32")
def geqrf(input):
    """(a, tau): R on and above the diagonal of a, the vectors of the reflections that make up Q below it. (..., M, N), (..., K)."""
    return matrices.qr_packed(input)


def _block_reflector(vectors, tau):
    """(V, T) of the product of reflections: V (..., M, K) with its ones and zeros in place, T (..., K, K)."""
    k = tau.shape[-1]
    m = vectors.shape[-2]
    v = vectors.narrow(-1, 0, k).tril(-1) + identity_like(vectors, max(m, k)).narrow(0, 0, m).narrow(1, 0, k)
    scaled = tau.unsqueeze(-1) * (adjoint(v) @ v).triu(1)
    d = tau.unsqueeze(-1) * identity_like(vectors, k)
    return v, _solve_triangular(scaled, d, True, True)


def _check_reflections(name: str, input, tau) -> None:
    check_matrices(name, input, "input")
    check_float(name, input)
    if tau.dtype is not input.dtype:
        raise RuntimeError(
            f"{name}: tau dtype {dtypes.in_messages(tau.dtype)} does not match input dtype {dtypes.in_messages(input.dtype)}"
        )
    n = input.shape[-1]
    if tau.dim() != input.dim() - 1 or tuple(tau.shape[:-1]) != tuple(input.shape[:-2]):
        shapes = f"{tuple(tau.shape)} for {tuple(input.shape)}"
        raise RuntimeError(f"{name}: batch dimensions of tau to be equal to input.shape[:-2] are expected, and one more, found {shapes}")
    if n < tau.shape[-1]:
        raise RuntimeError(f"{name}: input.shape[-1] must be greater than or equal to tau.shape[-1], found {n} and {tau.shape[-1]}")


@composite(method=False, out=True, name="linalg.householder_product", grad_name="LinalgHouseholderProductBackward0", autocast="cpu float32")
def householder_product(A, tau):
    """The first N columns of H_1 H_2 ... H_K. A (..., M, N), tau (..., K) -> (..., M, N)."""
    name = "torch.linalg.householder_product"
    check_matrices(name, A, "input")
    m, n = A.shape[-2:]
    if m < n:
        raise RuntimeError(f"{name}: input.shape[-2] must be greater than or equal to input.shape[-1], found {m} and {n}")
    _check_reflections(name, A, tau)
    v, t = _block_reflector(A, tau)
    return stored_by_columns(identity_like(A, m).narrow(1, 0, n) - v @ (t @ adjoint(v.narrow(-2, 0, n))))


@composite(out=True, autocast="cpu float32")
def orgqr(input, input2):
    """The older name of linalg.householder_product."""
    return householder_product(input, input2)


@composite(out=True, grad_name="OrmqrBackward0", autocast="cpu float32")
def ormqr(input, tau, other, left=True, transpose=False):
    """Q other (other Q if not `left`; Q^H instead of Q with `transpose`) for the whole Q = H_1 ... H_K, which is never formed."""
    name = "torch.ormqr"
    check_matrices(name, input, "input")
    check_matrices(name, other, "other")
    _check_reflections(name, input, tau)
    check_same_dtype(name, input, other, "input and other")
    side = -2 if left else -1
    if input.dim() != other.dim() or tuple(input.shape[:-2]) != tuple(other.shape[:-2]):
        shapes = f"{tuple(other.shape)} for {tuple(input.shape)}"
        raise RuntimeError(f"{name}: batch dimensions of other to be equal to input.shape[:-2] are expected, found {shapes}")
    if other.shape[side] != input.shape[-2]:
        raise RuntimeError(f"{name}: other.shape[{side}] must be equal to input.shape[-2], {input.shape[-2]}: found {other.shape[side]}")
    v, t = _block_reflector(input, tau)
    t = adjoint(t) if transpose else t
    change = v @ (t @ (adjoint(v) @ other)) if left else ((other @ v) @ t) @ adjoint(v)
    return stored_by_columns(other - change)
