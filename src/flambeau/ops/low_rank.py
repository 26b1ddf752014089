"""Approximations of low rank: a random subspace that contains most of a matrix, and the factorisation of the matrix within it.

Halko, Martinsson and Tropp (2009), algorithms 4.4 and 5.1.
"""

from __future__ import annotations

from flambeau.ops.declare import composite
from flambeau.ops.decompositions import linalg_qr, linalg_svd
from flambeau.ops.matrix import adjoint


def _random_like(x, *shape):
    """Normal random numbers with the dtype and device of x, which may be sparse."""
    return x.new_empty(shape).to_dense().normal_()


def _approximated(A, q: int, niter: int, M):
    """(Q, Q^H A), A less M: Q (..., m, q) has orthonormal columns such that Q Q^H A is close to A."""

    def times(x):
        return A @ x if M is None else A @ x - M @ x

    def turned_times(x):
        return adjoint(A) @ x if M is None else adjoint(A) @ x - adjoint(M) @ x

    Q = linalg_qr(times(_random_like(A, A.shape[-1], q))).Q
    for _ in range(niter):
        Q = linalg_qr(turned_times(Q)).Q
        Q = linalg_qr(times(Q)).Q
    return Q, adjoint(turned_times(Q))


@composite(method=False)
def svd_lowrank(A, q=6, niter=2, M=None):
    """(U, S, V) with A (less M) close to U diag(S) V^H, of rank q. A may be sparse. (..., m, n) -> (..., m, q), (..., q), (..., n, q)."""
    q = 6 if q is None else q
    M = None if M is None else M.expand(tuple(A.shape))
    m, n = A.shape[-2:]
    if m < n:  # the random subspace is that of the longer side
        V, S, U = svd_lowrank(adjoint(A), q, niter, None if M is None else adjoint(M))
        return U, S, V
    Q, B = _approximated(A, q, niter, M)
    U, S, Vh = linalg_svd(B, full_matrices=False)
    return Q @ U, S, adjoint(Vh)


@composite(method=False)
def pca_lowrank(A, q=None, center=True, niter=2):
    """(U, S, V) of the columns of A, less their means if `center`: V holds the principal directions. (..., m, n) -> as svd_lowrank."""
    m, n = A.shape[-2:]
    if q is None:
        q = min(6, m, n)
    if not 0 <= q <= min(m, n):
        raise ValueError(f"q must be non-negative, and not greater than the smaller side {min(m, n)}, found {q}")
    if niter < 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    if not A.is_floating_point() and not A.is_complex():
        raise ValueError(f"pca_lowrank takes floating point tensors, found {A.dtype}")
    return svd_lowrank(A, q, niter, (A.sum(-2).to_dense() / m).unsqueeze(-2) if center else None)
