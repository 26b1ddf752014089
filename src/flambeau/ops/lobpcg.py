"""LOBPCG: a few extreme eigenpairs of a large symmetric matrix, which only needs to multiply (Knyazev, 2001).

Of A x = l B x, every step looks for the best approximations within the span of the vectors X of the last step, the residuals
W = K (A X - B X diag(l)), which a preconditioner K may improve, and the directions P in which X last moved. In that small space the
eigenproblem is solved exactly (Rayleigh and Ritz).
"""

from __future__ import annotations

from math import prod

import numpy as np

from flambeau.ops import specs
from flambeau.ops.declare import OPS, composite, on_arrays
from flambeau.ops.decompositions import eigh
from flambeau.ops.matrix import adjoint, diagonal, identity_like
from flambeau.ops.norms import vector_norm
from flambeau.ops.solvers import _solve


@composite(method=False)
def lobpcg(
    A, k=None, B=None, X=None, n=None, iK=None, niter=None, tol=None, largest=None, method=None, tracker=None,
    ortho_iparams=None, ortho_fparams=None, ortho_bparams=None,
):  # fmt: skip
    """(E, X): the k largest (smallest, if not `largest`) eigenvalues and their vectors. A (..., M, M) -> (..., k), (..., M, k).

    X      where to start: (..., M, n); random if not given. n vectors are iterated, of which k are wanted
    iK     a preconditioner, which multiplies residuals
    tol    how small a residual must be, relative to A and to X; niter: the most steps
    """
    if A.requires_grad or (B is not None and B.requires_grad):
        if B is not None:
            raise ValueError("lobpcg has a derivative for B = None only: try linalg.eigh of L^-1 A L^-T, where B = L L^T")
        even = (A + A.mT).detach() / 2  # whoever checks the derivative by differences moves one element, and not its twin
        found = lobpcg(even, k, None, X, n, iK, niter, tol, largest, method, tracker, ortho_iparams, ortho_fparams, ortho_bparams)
        return tuple(_as_eigenpairs(A, *found))
    if tracker is not None:
        raise NotImplementedError("lobpcg cannot be watched by a tracker here")
    if method not in (None, "basic", "ortho"):
        raise ValueError(f"expected method 'basic' or 'ortho', found {method!r}")
    size = A.shape[-2]
    k = (1 if X is None else X.shape[-1]) if k is None else k
    n = (k if X is None else X.shape[-1]) if n is None else n
    if size < 3 * n:
        raise ValueError(f"LOBPCG needs at least 3 x as many rows of A (={size}) as requested eigenpairs (={n}). Try linalg.eigh")
    tol = float(np.finfo(A.dtype.numpy).eps) ** 0.5 if tol is None else tol
    sign = 1 if largest is None or largest else -1
    start = A.new_empty((*A.shape[:-1], n)).normal_() if X is None else X
    batch = tuple(A.shape[:-2])
    parts = [_flat(t, batch) for t in (A, start, B, iK)]
    found = [_iterate(*problem, sign, tol, 1000 if niter is None else niter) for problem in zip(*parts, strict=True)]
    values, vectors = (OPS["stack"]([f[i] for f in found]) for i in (0, 1))
    return values.reshape((*batch, n)).narrow(-1, 0, k), vectors.reshape((*batch, size, n)).narrow(-1, 0, k)


@on_arrays(public=False, method=False, returns="values vectors", grad_name="LOBPCGAutogradFunctionBackward")
def _as_eigenpairs(A, found_values, found_vectors):
    """The values (..., k) and vectors (..., M, k), which are A's: through them gradients flow to A."""
    return found_values.copy(), found_vectors.copy()


_as_eigenpairs.meta(lambda A, found_values, found_vectors: [specs.contiguous(found_values), specs.contiguous(found_vectors)])


def _eigenpairs_gradient(grads, A, values, vectors):
    """gA of A X = X diag(l) with X^T X = I, made symmetric as A is.

    Within the span of X as in eigh. Outside of it, dx_j solves (A - l_j) dx_j = -dA x_j there; X X^T makes that system regular.
    """
    of_values, of_vectors = grads
    x, turned = vectors, adjoint(vectors)
    found = 0.0 if of_values is None else (x * of_values.unsqueeze(-2)) @ turned
    if of_vectors is not None:
        turn = turned @ of_vectors
        gaps = values.unsqueeze(-2) - values.unsqueeze(-1)
        inside = (turn - diagonal(turn).diag_embed()) / (gaps + identity_like(gaps))
        span = x @ turned
        outside = identity_like(A) - span
        off = outside @ of_vectors  # (..., M, k)
        shifted = A.unsqueeze(-3) - values.unsqueeze(-1).unsqueeze(-1) * identity_like(A)  # (..., k, M, M)
        regular = outside.unsqueeze(-3) @ shifted @ outside.unsqueeze(-3) + span.unsqueeze(-3)
        moved = _solve(regular, off.mT.unsqueeze(-1)).squeeze(-1).mT
        found = found + x @ inside @ turned - moved @ turned
    return 0.5 * (found + adjoint(found))


_as_eigenpairs.derivative(A=_eigenpairs_gradient)


def _flat(t, batch) -> list:
    """The matrices of a batch in a list; None for each if there are none."""
    count = prod(batch)
    if t is None:
        return [None] * count
    return list(t.expand((*batch, *t.shape[-2:])).reshape((count, *t.shape[-2:])).unbind(0))


def _iterate(A, X, B, iK, sign: int, tol: float, niter: int):
    """(eigenvalues, vectors) of one matrix, the largest first (the smallest, if sign is -1)."""
    n = X.shape[-1]
    # How large A and B are to these vectors: by the norm of the matrix itself the small eigenvalues would end with half as many digits.
    size_a, size_b = (1.0 if M is None else (vector_norm(M @ X) / vector_norm(X)).item() for M in (A, B))
    values, X, _ = _best(A, B, X, n, sign)
    P = None
    for _ in range(niter):
        residuals = _times(A, X) - _times(B, X) * values
        allowed = tol * (size_a + values.abs() * size_b) * vector_norm(X, 2, 0)
        close = (vector_norm(residuals, 2, 0) <= allowed).all().item()
        W = _times(iK, residuals)
        values, X, P = _best(A, B, OPS["cat"]([X, W] if P is None else [X, W, P], 1), n, sign)
        if close:  # and one step further: close eigenvalues make large errors of the vectors of small residuals
            break
    return values, X


def _times(matrix, x):
    return x if matrix is None else matrix @ x


def _best(A, B, S, n: int, sign: int):
    """(values, vectors, directions): the n best approximations within the columns of S, and what of them is not in the first n columns."""
    lengths = vector_norm(S, 2, 0)
    S = S / lengths.masked_fill(lengths == 0, 1)  # residuals are short when they are nearly there, and must not be cut off below for that
    gram, turn = eigh(S.mT @ _times(B, S))
    cut = gram.amax().item() * gram.shape[0] * float(np.finfo(gram.dtype.numpy).eps)
    kept = int((gram > cut).sum().item())  # columns of S that depend on each other are left out
    basis = turn.narrow(1, gram.shape[0] - kept, kept) / gram.narrow(0, gram.shape[0] - kept, kept).sqrt()
    within = S @ basis
    values, coefficients = eigh(within.mT @ _times(A, within))
    if sign > 0:
        values, coefficients = values.flip(0), coefficients.flip(1)
    values, coefficients = values.narrow(0, 0, n), basis @ coefficients.narrow(1, 0, n)
    rest = S.narrow(1, n, S.shape[1] - n) @ coefficients.narrow(0, n, S.shape[1] - n) if S.shape[1] > n else None
    return values, S @ coefficients, rest
