"""Linear systems and inverses: A X = B for general, triangular and factored A; least squares; pseudo-inverses.

Notation in derivatives: g is the gradient of the result, X^H the conjugate transpose; an f(A) with df = P dA Q sends g to P^H g Q^H.
"""

from __future__ import annotations

from math import prod

import numpy as np

from flambeau.errors import LinAlgError
from flambeau.kernels import arrays, layout
from flambeau.kernels.linear_algebra import lapack, matrices
from flambeau.ops import specs
from flambeau.ops.asking import anywhere
from flambeau.ops.declare import composite, on_arrays
from flambeau.ops.matrix import (
    adjoint,
    check_matrices,
    check_same_dtype,
    check_square,
    check_system,
    from_lapack,
    older,
    refuse,
    vector_as_matrix,
)

SINGULAR = "The diagonal element {} is zero, the inversion could not be completed: the input matrix is singular."


@on_arrays(public=False, method=False)
def stored_by_columns(x):
    """Matrices as LAPACK leaves its results: stored column after column. (..., M, N) -> (..., M, N)."""
    return lapack.by_columns(x)


stored_by_columns.derivative(x=lambda grad: grad)
stored_by_columns.meta(lambda x: specs.by_columns(x.shape, x.dtype))

# -- inverses --------------------------------------------------------------------------------------------------------------


@from_lapack("linalg.inv", "N N", square=True, out="same", grad_name="LinalgInvExBackward0", autocast="cpu float32")
def inv(A):
    """The inverse of square matrices. (..., N, N) -> (..., N, N)."""
    try:
        return matrices.inverse(A)
    except np.linalg.LinAlgError:
        refuse("linalg.inv", matrices.lu_factor(A)[2], SINGULAR.format)
        raise LinAlgError("linalg.inv: the input matrix is singular, and has no inverse.") from None


def _inverse_gradient(grad, result):
    """d(A^-1) = -A^-1 dA A^-1."""
    turned = adjoint(result)
    return -(turned @ grad @ turned)


inv.derivative(A=_inverse_gradient)
older("inverse", inv, out=True, autocast="cpu float32")


@from_lapack("linalg.inv_ex", "N N, int32", square=True, returns="inverse info", autocast="cpu float32")
def inv_ex(A, *, check_errors=False):
    """(inverse, info): NaN for a singular matrix, an error if `check_errors`; info is the position of its first zero pivot, else 0."""
    info = matrices.lu_factor(A)[2]
    if check_errors:
        refuse("linalg.inv_ex", info, SINGULAR.format)
    found = arrays.module_of(A).full(A.shape, np.nan, A.dtype)
    fine = info == 0
    found[fine] = matrices.inverse(A[fine])
    return found, info


inv_ex.derivative(A=lambda grads, inverse: _inverse_gradient(grads[0], inverse))

# -- general systems -------------------------------------------------------------------------------------------------------


NO_SOLUTION = "There is no solution, or many: the input matrix is singular."


@from_lapack("linalg_solve_ex", "", public=False)
def _solve(A, B):
    """X with A X = B. (..., N, N), (..., N, K) -> (..., N, K); the batches broadcast."""
    try:
        return matrices.solve(A, B)
    except np.linalg.LinAlgError:
        refuse("torch.linalg.solve", matrices.lu_factor(A)[2], lambda i: NO_SOLUTION)
        raise LinAlgError(f"torch.linalg.solve: {NO_SOLUTION}") from None


def _solution(A, B, **_):
    """As B, the batches broadcast, and stored by columns."""
    return specs.by_columns((*layout.broadcast_shapes(tuple(A.shape[:-2]), tuple(B.shape[:-2])), *B.shape[-2:]), B.dtype)


@_solve.joint
def _solve_gradient(grad, A, result, needs):
    """X = A^-1 B, so gB = A^-H g, and gA = -gB X^H."""
    of_b = _solve(adjoint(A), grad)
    return {"B": of_b, "A": -(of_b @ adjoint(result)) if needs["A"] else None}


_solve.meta(_solution)


@composite(name="linalg.solve", method=False, out="same", autocast="cpu float32")
def solve(A, B, *, left=True):
    """X with A X = B, or X A = B if not `left`. (..., N, N), (..., N, K) or (..., N) -> the shape of B, batches broadcast.

    B stands for vectors if it is 1-D or has the shape of A without its last dimension.
    """
    name = "linalg.solve"
    vectors = vector_as_matrix(A, B)
    if vectors and not left:
        raise RuntimeError(f"{name}: with left=False B must be matrices, found vectors of shape {tuple(B.shape)}. Try B / A.squeeze(-1)")
    B = B.unsqueeze(-1) if vectors else B
    check_system(name, A, B, left)
    if not left:
        return _turned_solution(_solve(A.mT, B.mT))
    return _vectors_of_solution(_solve(A, B)) if vectors else _solve(A, B)


@on_arrays(public=False, method=False, grad_name="LinalgSolveExBackward0")
def _turned_solution(X):
    """The transposes of fresh matrices that lie by columns: row-major, and no view. (..., M, N) -> (..., N, M)."""
    return X.swapaxes(-1, -2)


_turned_solution.derivative(X=lambda grad: grad.mT)
_turned_solution.meta(lambda X: ((*X.shape[:-2], X.shape[-1], X.shape[-2]), X.dtype))


@on_arrays(public=False, method=False, grad_name="LinalgSolveExBackward0")
def _vectors_of_solution(X):
    """The columns of fresh matrices that have one each. PyTorch lays a batch of them out as one more matrix. (..., N, 1) -> (..., N)."""
    return X[..., 0] if X.ndim == 2 else lapack.by_columns(X[..., 0])


_vectors_of_solution.derivative(X=lambda grad: grad.unsqueeze(-1))
_vectors_of_solution.meta(lambda X: specs.by_columns(X.shape[:-1], X.dtype) if X.ndim > 2 else (X.shape[:-1], X.dtype))


@composite(name="linalg.solve_ex", method=False, out=True, returns="result info")
def solve_ex(A, B, *, left=True, check_errors=False):
    """(result, info) of linalg.solve: no error for a singular matrix, unless `check_errors`."""
    info = _lu_info(A, check_errors)
    if anywhere(info):
        A = A.masked_fill((info != 0).unsqueeze(-1).unsqueeze(-1), float("nan"))
    return solve(A, B, left=left), info


@from_lapack("linalg_lu_info", "int32", square=True, public=False)
def _lu_info(A, check_errors):
    """LAPACK's report on the LU factorisation: the position of the first zero pivot."""
    info = matrices.lu_factor(A)[2]
    if check_errors:
        refuse("torch.linalg.solve_ex", info, lambda i: NO_SOLUTION)
    return info


# -- triangular systems ----------------------------------------------------------------------------------------------------


@from_lapack("linalg_solve_triangular", "", public=False, integers=NotImplementedError)
def _solve_triangular(A, B, upper, unitriangular):
    """X with A X = B, reading one triangle of A. (..., N, N), (..., N, K) -> (..., N, K)."""
    return matrices.solve_triangular(A, B, upper, unitriangular)


@_solve_triangular.joint
def _solve_triangular_gradient(grad, A, result, upper, unitriangular, needs):
    """As for _solve, and what was not read has no gradient."""
    of_b = _solve_triangular(adjoint(A), grad, not upper, unitriangular)
    if not needs["A"]:
        return {"B": of_b}
    of_a = -(of_b @ adjoint(result))
    return {"B": of_b, "A": of_a.triu(int(unitriangular)) if upper else of_a.tril(-int(unitriangular))}


_solve_triangular.meta(_solution)


@composite(name="linalg.solve_triangular", method=False, out=True, grad_name="LinalgSolveTriangularBackward0")
def solve_triangular(A, B, *, upper, left=True, unitriangular=False):
    """X with A X = B (X A = B if not `left`) for triangular A; with `unitriangular` its diagonal is taken for ones."""
    check_system("linalg.solve_triangular", A, B, left)
    if left:
        return _solve_triangular(A, B, bool(upper), bool(unitriangular))
    return stored_by_columns(_solve_triangular(A.mT, B.mT, not upper, bool(unitriangular)).mT)


@composite(out="same", returns="solution cloned_coefficient", grad_name="TriangularSolveBackward0", autocast="cpu float32")
def triangular_solve(input, A, upper=True, transpose=False, unitriangular=False):
    """(X, a copy of A) with A X = input for triangular A (A^T X = input with `transpose`). The older form of linalg.solve_triangular."""
    for name, t in (("b", input), ("A", A)):
        if t.dim() < 2:
            raise RuntimeError(f"torch.triangular_solve: {name} must have at least 2 dimensions, found {t.dim()}")
    check_system("triangular_solve", A, input, names="A and b")
    coefficient, upper = (A.mT, not upper) if transpose else (A, upper)
    solution = _solve_triangular(coefficient, input, bool(upper), bool(unitriangular))
    copy = A.expand((*solution.shape[:-2], *A.shape[-2:])).clone()
    return solution, stored_by_columns(copy)


# -- with a Cholesky factor ------------------------------------------------------------------------------------------------


def _factor_gradient(of_a, L, upper):
    """From the gradient of A = L L^H (or U^H U) to that of the factor."""
    both = of_a + adjoint(of_a)
    return L @ both if upper else both @ L


@from_lapack("cholesky_solve", "", method=True, integers=NotImplementedError, out="cast rows", autocast="cpu float32")
def cholesky_solve(input, input2, upper=False):
    """X with A X = input, given the Cholesky factor of A, input2 = L: A = L L^H, or U^H U if `upper`. (..., N, K), (..., N, N) -> (..., N, K)."""
    check_system("cholesky_solve", input2, input, names="A and b")
    return matrices.solve_cholesky(input2, input, upper)


@cholesky_solve.meta
def _(input, input2, upper=False):
    check_system("cholesky_solve", input2, input, names="A and b")
    return _solution(input2, input)


@cholesky_solve.joint
def _(grad, input2, result, upper, needs):
    of_b = cholesky_solve(grad, input2, upper)
    return {"input": of_b, "input2": _factor_gradient(-(of_b @ adjoint(result)), input2, upper) if needs["input2"] else None}


@from_lapack("cholesky_inverse", "N N", square=True, method=True, integers=NotImplementedError, autocast="cpu float32")
def cholesky_inverse(input, upper=False):
    """The inverse of A, given its Cholesky factor, input = L: A = L L^H, or U^H U if `upper`. (..., N, N) -> (..., N, N)."""
    refuse("cholesky_inverse", matrices.first(arrays.module_of(input).diagonal(input, axis1=-2, axis2=-1) == 0), SINGULAR.format)
    return matrices.solve_cholesky(input, None, upper)


cholesky_inverse.derivative(input=lambda grad, input, result, upper: _factor_gradient(_inverse_gradient(grad, result), input, upper))


# -- least squares ---------------------------------------------------------------------------------------------------------


@from_lapack("linalg_lstsq", "", public=False, returns="solution residuals rank singular_values", by_columns=False, autocast="cpu float32")
def _lstsq(A, B, rcond, driver):
    """The solution of least norm: for 'gelsy' by QR, else by the singular value decomposition; the driver decides which results are given."""
    xp = arrays.module_of(A)
    m, n = A.shape[-2:]
    eps = float(np.finfo(A.dtype).eps)
    if rcond is None:
        rcond = max(m, n) * eps
    elif rcond < 0 or (driver == "gelsd" and not 0 < rcond < 1):
        rcond = eps  # as LAPACK reads it
    if driver == "gelsy":
        found = matrices.least_squares(A, B, rcond)
        if found is not None:
            nothing = np.zeros(0, A.real.dtype)
            return _above_residuals(found[0], m), nothing, found[1].astype(np.int64), nothing.copy()
    u, s, vh = matrices.svd(A, False)
    kept = (s > rcond * s[..., :1]) if driver != "gels" else xp.ones(s.shape, bool)
    with np.errstate(all="ignore"):
        inverse = xp.where(kept, 1 / s, 0).astype(s.dtype)
    x = xp.swapaxes(vh, -1, -2).conj() @ (inverse[..., None] * (xp.swapaxes(u, -1, -2).conj() @ B))
    rank = kept.sum(-1)
    residuals = xp.zeros(0, s.dtype)
    if m > n and driver != "gelsy" and bool((rank == n).all()):
        off = A @ x - B
        residuals = xp.asarray((off.real**2 + off.imag**2 if off.dtype.kind == "c" else off**2).sum(-2))
    no_rank, no_values = driver == "gels", driver in ("gels", "gelsy")
    x = _above_residuals(x, m)
    return x, residuals, xp.zeros(0, np.int64) if no_rank else xp.asarray(rank, np.int64), xp.zeros(0, s.dtype) if no_values else s


def _above_residuals(x, m: int):
    """Solutions as LAPACK leaves them: by columns, each above what is left of a right-hand side with m rows, if that is longer."""
    *batch, n, k = x.shape
    out = arrays.empty_beside(x, (*batch, k, max(m, n)), x.dtype).swapaxes(-1, -2)[..., :n, :]
    arrays.write(out, x)
    return out


@_lstsq.meta
def _(A, B, rcond, driver):
    """The residuals' shape is that of a matrix of full rank: another's are empty, and which it is, is in the data."""
    (*batch, m, n), k, real = A.shape, B.shape[-1], specs.KINDS["real"](A.dtype)
    strides = layout.transpose((*batch, k, max(m, n)), layout.contiguous_strides((*batch, k, max(m, n))), -1, -2)[1]
    residuals = (*batch, k) if m > n and driver != "gelsy" else (0,)
    rank, values = tuple(batch) if driver != "gels" else (0,), (*batch, min(m, n)) if driver in ("gelsd", "gelss") else (0,)
    return [((*batch, n, k), B.dtype, strides), (residuals, real), (rank, "int64"), (values, real)]


@_lstsq.joint
def _lstsq_gradient(grads, A, B, solution, needs):
    """X = A^+ B, and the residuals sum |A X - B|^2, in which a change of X is of second order."""
    grad, of_residuals = grads[0], grads[1] if len(grads) > 1 else None
    inverse = pinv(A)
    of_a = of_b = None
    if grad is not None:
        of_a = _pinv_gradient(grad @ adjoint(B), inverse, A) if needs["A"] else None
        of_b = adjoint(inverse) @ grad
    if of_residuals is not None and of_residuals.numel():
        off = 2 * (A @ solution - B) * of_residuals.unsqueeze(-2)
        of_a = off @ adjoint(solution) if of_a is None else of_a + off @ adjoint(solution)
        of_b = -off if of_b is None else of_b - off
    return {"A": of_a, "B": of_b}


@composite(name="linalg.lstsq", method=False, autocast="cpu float32")
def lstsq(A, B, rcond=None, *, driver=None):
    """X that makes |A X - B| least, of all such X the shortest. (..., M, N), (..., M, K) or (..., M) -> (..., N, K) or (..., N).

    Returns (solution, residuals, rank, singular_values); what the driver does not compute is empty: 'gelsy' (the default) gives the rank,
    'gelsd' and 'gelss' the singular values and residuals too, 'gels' takes A to have full rank and gives the residuals.
    """
    name = "torch.linalg.lstsq"
    check_matrices(name, A, "input")
    if B.dim() < 1:
        raise RuntimeError(f"{name}: other must have at least 1 dimension.")
    driver = driver or "gelsy"
    if driver not in ("gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError(f"{name}: parameter `driver` should be one of (gels, gelsy, gelsd, gelss), found {driver!r}")
    check_same_dtype(name, A, B, "input and other")
    vectors = vector_as_matrix(A, B)
    if vectors:
        B = B.unsqueeze(-1)
    if B.dim() < 2 or A.shape[-2] != B.shape[-2]:
        other = "other.size(-1)" if vectors else "other.size(-2)"
        raise RuntimeError(f"{name}: input.size(-2) should match {other}, found {tuple(A.shape)} and {tuple(B.shape)}")
    rcond = rcond.item() if hasattr(rcond, "_array") else rcond
    batch = layout.broadcast_shapes(tuple(A.shape[:-2]), tuple(B.shape[:-2]))
    found = _lstsq(A.expand((*batch, *A.shape[-2:])), B.expand((*batch, *B.shape[-2:])), rcond, driver)
    return type(found)(found.solution.squeeze(-1), *found[1:]) if vectors else found


# -- pseudo-inverses -------------------------------------------------------------------------------------------------------


@from_lapack("linalg.pinv", "N M", by_columns=False)
def pinv(A, rcond=None, hermitian=False, *, atol=None, rtol=None):
    """The pseudo-inverse V S^-1 U^H, without the singular values up to max(atol, rtol * the largest). (..., M, N) -> (..., N, M)."""
    if hermitian:
        check_square("linalg.pinv", A)
    xp = arrays.module_of(A)
    m, n = A.shape[-2:]
    if 0 in (m, n):
        return xp.zeros((*A.shape[:-2], n, m), A.dtype)
    if hermitian:
        s, v = matrices.eigh(A, "L")
        u, vh, size = v, xp.swapaxes(v, -1, -2).conj(), abs(s)
    else:
        u, s, vh = matrices.svd(A, False)
        size = s
    cut = cutoff("linalg.pinv", A, size, atol, rtol if rcond is None else rcond, "rtol" if rcond is None else "rcond")
    with np.errstate(all="ignore"):
        inverse = xp.where(size > cut, 1 / s, 0).astype(s.dtype)
    return (xp.swapaxes(vh, -1, -2).conj() * inverse[..., None, :]) @ xp.swapaxes(u, -1, -2).conj()


def cutoff(name: str, A, size, atol, rtol, called: str = "rtol"):
    """max(atol, rtol * the largest): up to that a singular value counts as zero. rtol is max(M, N) eps unless either is given."""
    xp = arrays.module_of(A)
    for which, tolerance in (("atol", atol), (called, rtol)):
        if hasattr(tolerance, "dtype") and tolerance.dtype.kind == "c":
            raise RuntimeError(f"{name}: {which} tensor of complex type is not supported.")
    atol = xp.asarray(0.0 if atol is None else atol)
    if rtol is None:  # a tolerance of zero is none at all: that matrix gets the default
        rtol = xp.where(atol > 0, 0.0, max(A.shape[-2:]) * float(np.finfo(size.dtype).eps))
    return xp.maximum(size.max(-1, keepdims=True) * xp.asarray(rtol)[..., None], atol[..., None])


def _pinv_gradient(grad, result, A):
    """For P = A^+:  dP = -P dA P + P P^H dA^H (I - A P) + (I - P A) dA^H P^H P."""
    turned, back = adjoint(result), adjoint(grad)
    found = -(turned @ grad @ turned)
    right = back @ (result @ turned)  # g^H P P^H
    left = (turned @ result) @ back  # P^H P g^H
    return found + (right - A @ (result @ right)) + (left - (left @ result) @ A)


pinv.derivative(A=_pinv_gradient, **dict.fromkeys(("rcond", "atol", "rtol"), lambda grad: None))


@composite(autocast="cpu float32")
def pinverse(input, rcond=1e-15):
    """The pseudo-inverse; the older name of linalg.pinv."""
    return pinv(input, rcond)


# -- tensors as operators --------------------------------------------------------------------------------------------------


@composite(name="linalg.tensorinv", method=False, out="cast rows", autocast="cpu float32")
def tensorinv(A, ind=2):
    """The inverse of A as an operator that takes its last dimensions to its first `ind`: tensordot(tensorinv(A), A, ind) is an identity."""
    if ind <= 0:
        raise RuntimeError(f"Expected a strictly positive integer for 'ind', found {ind}")
    shape = tuple(A.shape)
    rows, columns = prod(shape[:ind]), prod(shape[ind:])
    if rows != columns:
        said = "Expected self to satisfy the requirement that the sizes before ind have the product of those from ind on"
        raise RuntimeError(f"{said}, but got {columns} != {rows}")
    return inv(A.reshape((rows, columns))).reshape((*shape[ind:], *shape[:ind]))


@composite(name="linalg.tensorsolve", method=False, out=True, autocast="cpu float32")
def tensorsolve(A, B, dims=None):
    """X with tensordot(A, X, X.ndim) = B. `dims` of A are moved to its end first."""
    if dims is not None:
        A = A.movedim(tuple(dims), tuple(range(A.dim() - len(dims), A.dim())))
    shape = tuple(A.shape)[B.dim() :]
    rows, columns = B.numel(), prod(shape)
    if rows != columns:
        said = "Expected self to satisfy the requirement that the sizes of other's dimensions have the product of the rest"
        raise RuntimeError(f"{said}, but got {columns} != {rows}")
    return solve(A.reshape((columns, columns)), B.reshape(-1)).reshape(shape)
