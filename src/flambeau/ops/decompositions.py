"""Factorisations of matrices: Cholesky, LU, LDL^T, QR, singular values, eigenvalues.

A matrix is the last two dimensions, (..., M, N); K stands for min(M, N). Forwards are LAPACK's, see kernels/linear_algebra/matrices.py. Derivatives follow from differentiating the defining equation: dA = dU S V^H + U dS V^H + U S dV^H and so on,
then solving for the factors' differentials. X^H is the conjugate transpose, ∘ the elementwise product.
"""

from __future__ import annotations

from flambeau import errors
from flambeau.kernels import arrays
from flambeau.kernels.linear_algebra import matrices
from flambeau.ops.declare import OPS, composite
from flambeau.ops.matrix import adjoint, check_matrices, conj, diagonal, from_lapack, identity_like, refuse
from flambeau.ops.solvers import _solve, _solve_triangular

# -- Cholesky: A = L L^H ---------------------------------------------------------------------------------------------------


NOT_POSITIVE = "The factorization could not be completed because the input is not positive-definite, as its leading minor of order {} is not positive-definite."


@from_lapack("linalg_cholesky_ex", "N N, int32", square=True, public=False, returns="L info", autocast="cpu float32")
def _cholesky(A, upper, check_errors=True):
    """(L, info), or with `upper` (L^H, info)."""
    xp = arrays.module_of(A)
    source = xp.swapaxes(A, -1, -2).conj() if upper else A
    factor, info = matrices.cholesky(source)
    if check_errors:
        refuse("linalg.cholesky", info, NOT_POSITIVE.format)
    return (xp.ascontiguousarray(xp.swapaxes(factor, -1, -2).conj()) if upper else factor), info


def _cholesky_gradient(grads, L, upper):
    """gA = L^-H sym(L^H gL) L^-1, where sym mirrors the lower triangle."""
    grad = grads[0]
    lower, grad = (adjoint(L), adjoint(grad)) if upper else (L, grad)
    inside = (adjoint(lower) @ grad).tril()
    inside = 0.5 * (inside + adjoint(inside.tril(-1)))
    turned = adjoint(lower)
    left = _solve_triangular(turned, inside, True, False)
    return adjoint(_solve_triangular(turned, adjoint(left), True, False))


_cholesky.derivative(A=_cholesky_gradient)


@composite(name="linalg.cholesky_ex", method=False, out="same", autocast="cpu float32")
def cholesky_ex(A, *, upper=False, check_errors=False):
    """(L, info): no error for an A that is not positive definite, unless `check_errors`; info is the first block that is not, or 0."""
    return _cholesky(A, upper, check_errors)


@composite(name="linalg.cholesky", method=False, out="same", autocast="cpu float32")
def linalg_cholesky(A, *, upper=False):
    """L, lower triangular, with L L^H = A for Hermitian positive definite A; with `upper` L^H. (..., N, N) -> (..., N, N)."""
    return _cholesky(A, upper).L


@composite(out="same rows", grad_name="CholeskyBackward0", autocast="cpu float32")
def cholesky(input, upper=False):
    """L with L L^H = input, or with `upper` U with U^H U = input; the older form of linalg.cholesky. (..., N, N) -> (..., N, N)."""
    errors.warn("torch.cholesky is deprecated: use torch.linalg.cholesky")
    return _cholesky(input, upper).L


# -- QR: A = Q R -----------------------------------------------------------------------------------------------------------

QR_SHAPES = {"reduced": "M K, K N", "complete": "M M, M N", "r": "0, K N"}


@from_lapack("linalg.qr", lambda A, mode="reduced": QR_SHAPES.get(mode, "M K, K N"), returns="Q R", autocast="cpu float32")
def linalg_qr(A, mode="reduced"):
    """(Q, R) with A = Q R, Q with orthonormal columns, R upper triangular.

    'reduced': (..., M, K), (..., K, N);  'complete': (..., M, M), (..., M, N);  'r': an empty Q, (..., K, N)
    """
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(f"qr received unrecognized mode '{mode}': there are 'reduced', 'complete' and 'r'")
    q, r = matrices.qr(A, mode)
    return (arrays.module_of(A).zeros(0, A.dtype) if q is None else q), r


def _qr_gradient(grads, Q, R, mode, A_shape):
    """Of A = Q R: with M = R gR^H - gQ^H Q, gA = (gQ + Q herm(M)) R^-H, where herm mirrors the lower triangle.

    A wide A is [X Y] with X square: then X = Q U has the gradients gQ + Y gV^H and gU, and Y = Q V gets Q gV.
    """
    m, n = A_shape[-2:]
    if mode == "r":
        raise RuntimeError("The derivative of linalg.qr depends on Q, and mode='r' computes none. Try mode='reduced'")
    if mode == "complete" and m > n:
        raise RuntimeError("The QR decomposition is not differentiable when mode='complete' and nrows > ncols. Try mode='reduced'")
    of_q, of_r = grads
    if m >= n:
        return _tall_qr_gradient(of_q, of_r, Q, R)
    square, rest = R.narrow(-1, 0, m), R.narrow(-1, m, n - m)
    if of_r is None:
        return OPS["cat"]([_tall_qr_gradient(of_q, None, Q, square), Q.new_zeros((*Q.shape[:-1], n - m))], -1)
    of_square, of_rest = of_r.narrow(-1, 0, m), of_r.narrow(-1, m, n - m)
    from_rest = (Q @ rest) @ adjoint(of_rest)
    of_q = from_rest if of_q is None else of_q + from_rest
    return OPS["cat"]([_tall_qr_gradient(of_q, of_square, Q, square), Q @ of_rest], -1)


def _tall_qr_gradient(of_q, of_r, Q, R):
    inside = 0.0 if of_r is None else R @ adjoint(of_r)
    if of_q is not None:
        inside = inside - adjoint(of_q) @ Q
    lower = inside.tril(-1)
    inside = lower + adjoint(lower) + diagonal(inside).real.to(Q.dtype).diag_embed()
    total = Q @ inside if of_q is None else of_q + Q @ inside
    # X R^H = total, solved as R X^H = total^H
    return adjoint(_solve_triangular(R, adjoint(total), True, False))


linalg_qr.derivative(A=_qr_gradient)


@composite(out=True, returns="Q R", autocast="cpu float32")
def qr(input, some=True):
    """(Q, R) with input = Q R; the older form of linalg.qr, whose mode is 'complete' if not `some`."""
    errors.warn("torch.qr is deprecated: use torch.linalg.qr, whose mode says what `some` did")
    return linalg_qr(input, "reduced" if some else "complete")


# -- singular values: A = U S V^H ------------------------------------------------------------------------------------------


@from_lapack(
    "linalg_svd",
    lambda A, full_matrices: "M M, K real, N N" if full_matrices else "M K, K real, K N",
    public=False,
    returns="U S Vh",
    autocast="cpu float32",
)
def _svd(A, full_matrices):
    return tuple(matrices.svd(A, full_matrices))


@composite(name="linalg.svd", method=False, out=True, autocast="cpu float32")
def linalg_svd(A, full_matrices=True, *, driver=None):
    """(U, S, Vh) with A = U diag(S) Vh, U and Vh^H with orthonormal columns, S descending.

    (..., M, M), (..., K), (..., N, N); without full_matrices (..., M, K), (..., K), (..., K, N)
    """
    _check_driver(A, driver)
    return _svd(A, full_matrices)


def _check_driver(A, driver) -> None:
    if driver is not None and A.device.type != "cuda":
        raise RuntimeError("torch.linalg.svd: `driver` names a routine of cuSOLVER, which CUDA tensors have and these have not")


def _svd_gradient(grads, U, S, Vh, full_matrices):
    """gA = U (skew(U^H gU)/E S + S skew(V^H gV)/E + gS) V^H + what leaves the space of U or V; E_ij = s_j^2 - s_i^2.

    U and V are determined up to a common phase of their columns. A function that notices that phase has no gradient: the error below.
    """
    of_u, of_s, of_vh = grads
    k = S.shape[-1]
    if full_matrices:  # the further columns span what is left, and carry no gradient
        U, Vh = U.narrow(-1, 0, k), Vh.narrow(-2, 0, k)
        of_u = None if of_u is None else of_u.narrow(-1, 0, k)
        of_vh = None if of_vh is None else of_vh.narrow(-2, 0, k)
    if of_u is None and of_vh is None:
        return (U * of_s.unsqueeze(-2).to(U.dtype)) @ Vh
    m, n = U.shape[-2], Vh.shape[-1]
    turn_u = None if of_u is None else adjoint(U) @ of_u
    turn_v = None if of_vh is None else Vh @ adjoint(of_vh)
    if U.is_complex():
        _check_phase("svd_backward", turn_v if turn_u is None else turn_u if turn_v is None else turn_u + turn_v)
    row, column = S.unsqueeze(-2), S.unsqueeze(-1)
    gaps = (row - column) * (row + column) + identity_like(S)  # ones instead of zeros on the diagonal, where the numerator is zero
    inside = 0.0 if turn_u is None else (_skew(turn_u) / gaps) * row
    if turn_v is not None:
        inside = inside + column * (_skew(turn_v) / gaps)
    if of_s is not None:
        inside = inside + of_s.to(U.dtype).diag_embed()
    if U.is_complex() and turn_u is not None:
        inside = inside + (1j * (diagonal(turn_u).imag / S)).diag_embed()
    found = U @ inside
    if of_u is not None and m > k:
        found = found + (of_u - U @ turn_u) / row
    found = found @ Vh
    if of_vh is not None and n > k:
        found = found + U @ ((of_vh - adjoint(turn_v) @ Vh) / column)
    return found


def _skew(x):
    return x - adjoint(x)


def _check_phase(name: str, turn) -> None:
    """RuntimeError if the gradient has a part along the phases of the columns: the imaginary diagonal of V^H gV."""
    phases = diagonal(turn).imag.detach().abs()
    if phases.numel() and not phases.is_meta and phases.max().item() > 1e-2 * max(1.0, turn.detach().abs().max().item()):
        known = "the gradient depends on the phase of complex singular vectors or eigenvectors, which are known up to a factor e^{i phi}"
        raise RuntimeError(f"{name}: {known}. So the loss is ill-defined: make it one that a change of phase leaves alone")


_svd.derivative(A=_svd_gradient)


@from_lapack("linalg_svdvals", "K real", public=False, autocast="cpu float32")
def _singular_values(A):
    return matrices.svd(A, False, False)


@composite(name="linalg.svdvals", method=False, out="same", autocast="cpu float32")
def svdvals(A, *, driver=None):
    """The singular values of A, in descending order. (..., M, N) -> (..., K)."""
    _check_driver(A, driver)
    return _svd(A, False).S if A.requires_grad else _singular_values(A)  # the derivative needs the vectors


@composite(out=True, returns="U S V", autocast="cpu float32")
def svd(input, some=True, compute_uv=True):
    """(U, S, V) with input = U diag(S) V^H; the older form of linalg.svd. Without compute_uv, U and V are zeros."""
    if compute_uv:
        u, s, vh = _svd(input, not some)
        return u, s, adjoint(vh)
    check_matrices("linalg.svd", input)
    *batch, m, n = input.shape
    return input.new_zeros((*batch, m, m)), svdvals(input), input.new_zeros((*batch, n, n))


# -- eigenvalues: A V = V diag(L) ------------------------------------------------------------------------------------------


@from_lapack("linalg.eigh", "N real, N N", square=True, out="same", returns="eigenvalues eigenvectors", autocast="cpu float32")
def eigh(A, UPLO="L"):
    """(eigenvalues, eigenvectors) of Hermitian matrices: A = V diag(L) V^H, L real and ascending. UPLO: which triangle of A is read."""
    return tuple(matrices.eigh(A, _triangle(UPLO)))


def _triangle(UPLO: str) -> str:
    if not isinstance(UPLO, str) or UPLO.upper() not in ("L", "U"):
        raise RuntimeError(f"UPLO argument must be 'L' or 'U', found {UPLO!r}")
    return UPLO.upper()


def _eigh_gradient(grads, eigenvalues, eigenvectors):
    """gA = V (diag(gL) + V^H gV / E) V^H with E_ij = l_j - l_i, made Hermitian as A is."""
    of_values, of_vectors = grads
    v = eigenvectors
    if of_vectors is None:
        return (v * of_values.unsqueeze(-2)) @ adjoint(v)
    turn = adjoint(v) @ of_vectors
    if v.is_complex():
        _check_phase("linalg_eigh_backward", turn)
    gaps = eigenvalues.unsqueeze(-2) - eigenvalues.unsqueeze(-1)
    inside = (turn - diagonal(turn).diag_embed()) / (gaps + identity_like(gaps))
    if of_values is not None:
        inside = inside + of_values.to(v.dtype).diag_embed()
    return v @ (0.5 * (inside + adjoint(inside))) @ adjoint(v)


eigh.derivative(A=_eigh_gradient)


@from_lapack("linalg_eigvalsh", "N real", square=True, public=False, autocast="cpu float32")
def _eigvalsh(A, UPLO):
    return matrices.eigh(A, _triangle(UPLO), False)


@composite(name="linalg.eigvalsh", method=False, out="same", autocast="cpu float32")
def eigvalsh(A, UPLO="L"):
    """The eigenvalues of Hermitian matrices, real and ascending. (..., N, N) -> (..., N)."""
    return eigh(A, UPLO).eigenvalues if A.requires_grad else _eigvalsh(A, UPLO)


@from_lapack("linalg.eig", "N complex, N N complex", square=True, returns="eigenvalues eigenvectors", autocast="cpu float32")
def eig(A):
    """(eigenvalues, eigenvectors) of square matrices: A V = V diag(L), both complex, in no particular order, each vector of length 1.

    (..., N, N) -> (..., N), (..., N, N)
    """
    return _eig("linalg.eig", A)


def _eig(name: str, A, vectors: bool = True):
    if not bool(arrays.module_of(A).isfinite(A).all()):
        raise RuntimeError(f"torch.{name}: input tensor should not contain infs or NaNs. Look for them with x.isfinite()")
    return matrices.eig(A, vectors)


def _eig_gradient(grads, eigenvalues, eigenvectors):
    """gA = V^-H (diag(gL) + (V^H gV - V^H V diag(Re V^H gV)) / conj(E)) V^H with E_ij = l_j - l_i."""
    of_values, of_vectors = grads
    v = eigenvectors
    turned = adjoint(v)
    if of_vectors is None:
        inside = of_values.diag_embed()
    else:
        turn = turned @ of_vectors
        _check_phase("linalg_eig_backward", turn)
        inside = turn - (turned @ v) * diagonal(turn).real.unsqueeze(-2)  # a change of length of the columns is undone
        gaps = conj(eigenvalues.unsqueeze(-2) - eigenvalues.unsqueeze(-1))
        inside = (inside - diagonal(inside).diag_embed()) / (gaps + identity_like(gaps))
        if of_values is not None:
            inside = inside + of_values.diag_embed()
    return _solve(turned, inside @ turned)


eig.derivative(A=_eig_gradient)


@from_lapack("linalg_eigvals", "N complex", square=True, public=False, autocast="cpu float32")
def _eigvals(A):
    return _eig("linalg.eigvals", A, False)


@composite(name="linalg.eigvals", method=False, out="cast as eigenvalues", autocast="cpu float32")
def eigvals(A):
    """The complex eigenvalues of square matrices, in no particular order. (..., N, N) -> (..., N)."""
    return eig(A).eigenvalues if A.requires_grad else _eigvals(A)
