"""Linear systems and inverses: A X = B for general, triangular and factored A; least squares; pseudo-inverses.

Notation in derivatives: g is the gradient of the result, X^H the conjugate transpose; an f(A) with df = P dA Q sends g to P^H g Q^H.
"""

from __future__ import annotations

from math import prod

import numpy as np

from flambeau import dtypes
from flambeau.errors import LinAlgError
from flambeau.kernels import arrays, layout, matrices
from flambeau.ops import shape_rules
from flambeau.ops.declare import composite, on_arrays
from flambeau.ops.matrix import (
    SINGULAR,
    adjoint,
    check_float,
    check_lapack,
    check_matrices,
    check_same_dtype,
    check_square,
    check_system,
    from_lapack,
    refuse,
    transposed,
    vector_as_matrix,
)
from flambeau.ops.results import named_result

# -- inverses --------------------------------------------------------------------------------------------------------------


def _inverse(name: str, a):
    """Inverses of square matrices; LinAlgError names the first that has none."""
    check_square(name, a)
    check_float(name, a)
    try:
        return matrices.inverse(a)
    except np.linalg.LinAlgError:
        refuse(name, matrices.lu_factor(a)[2], SINGULAR.format)
        raise LinAlgError(f"{name}: the inversion could not be completed because the input matrix is singular.") from None


@on_arrays(name="linalg.inv", method=False, autocast="float32", grad_name="LinalgInvExBackward0")
def inv(A):
    """The inverse of square matrices. (..., N, N) -> (..., N, N)."""
    return _inverse("linalg.inv", A)


def _inverse_gradient(grad, result):
    """d(A^-1) = -A^-1 dA A^-1."""
    turned = adjoint(result)
    return -(turned @ grad @ turned)


inv.derivative(A=_inverse_gradient)


@inv.meta
def _(A):
    check_square("linalg.inv", A)
    return A.shape, A.dtype


@composite(out=True)
def inverse(input):
    """The inverse of square matrices. (..., N, N) -> (..., N, N)."""
    return inv(input)


@from_lapack(name="linalg_inv_ex", returns="inverse info")
def _inv_ex(A):
    """(inverse, info): NaN where there is no inverse, and in info the position of the first zero pivot."""
    check_square("linalg.inv_ex", A)
    check_float("linalg.inv_ex", A)
    xp = arrays.module_of(A)
    info = matrices.lu_factor(A)[2]
    found = xp.full(A.shape, np.nan, A.dtype)
    fine = info == 0
    found[fine] = matrices.inverse(A[fine])
    return found, info


_inv_ex.derivative(A=lambda grads, inverse: _inverse_gradient(grads[0], inverse))


@composite(name="linalg.inv_ex", method=False, out=True)
def inv_ex(A, *, check_errors=False):
    """(inverse, info): no error for a singular matrix, unless `check_errors`; info is the position of its first zero pivot, else 0."""
    found = _inv_ex(A)
    if check_errors:
        refuse("linalg.inv_ex", found.info._array, SINGULAR.format)
    return found


# -- general systems -------------------------------------------------------------------------------------------------------


NO_SOLUTION = "The solver failed because the input matrix is singular."


@from_lapack(name="linalg_solve_ex")
def _solve(A, B):
    """X with A X = B. (..., N, N), (..., N, K) -> (..., N, K); the batches broadcast."""
    check_float("linalg.solve", A, B)
    try:
        return matrices.solve(A, B)
    except np.linalg.LinAlgError:
        refuse("torch.linalg.solve", matrices.lu_factor(A)[2], lambda i: NO_SOLUTION)
        raise LinAlgError(f"torch.linalg.solve: {NO_SOLUTION}") from None


@_solve.joint
def _solve_gradient(grad, A, result, needs):
    """X = A^-1 B, so gB = A^-H g, and gA = -gB X^H."""
    of_b = _solve(adjoint(A), grad)
    return {"B": of_b, "A": -(of_b @ adjoint(result)) if needs["A"] else None}


_solve.meta(shape_rules.system)


@composite(name="linalg.solve", method=False, out=True)
def solve(A, B, *, left=True):
    """X with A X = B, or X A = B if not `left`. (..., N, N), (..., N, K) or (..., N) -> the shape of B, batches broadcast.

    B stands for vectors if it is 1-D or has the shape of A without its last dimension.
    """
    name = "linalg.solve"
    check_square(name, A._array)
    check_same_dtype(name, A, B)
    vectors = vector_as_matrix(A, B)
    if vectors and not left:
        raise RuntimeError(
            f"{name}: with left=False B must be matrices, found vectors of shape {tuple(B.shape)}: there, X is B / A.squeeze(-1)"
        )
    B = B.unsqueeze(-1) if vectors else B
    check_system(name, A._array, B._array, left)
    if not left:
        return transposed(_solve(transposed(A), transposed(B)))
    found = _solve(A, B)
    return found.squeeze(-1) if vectors else found


_SolveEx = named_result("linalg_solve_ex", "result info")


@composite(name="linalg.solve_ex", method=False, out=True)
def solve_ex(A, B, *, left=True, check_errors=False):
    """(result, info) of linalg.solve: no error for a singular matrix, unless `check_errors`."""
    check_square("linalg.solve_ex", A._array)
    check_float("linalg.solve_ex", A._array)
    info = _lu_info(A)
    if check_errors:
        refuse("torch.linalg.solve_ex", info._array, lambda i: NO_SOLUTION)
    if info.any().item():
        bad = (info != 0).unsqueeze(-1).unsqueeze(-1)
        A = A.masked_fill(bad, float("nan"))
    return _SolveEx(solve(A, B, left=left), info)


@on_arrays(public=False, method=False)
def _lu_info(A):
    """LAPACK's report on the LU factorisation: the position of the first zero pivot."""
    return matrices.lu_factor(A)[2]


# -- triangular systems ----------------------------------------------------------------------------------------------------


@from_lapack(name="linalg_solve_triangular")
def _solve_triangular(A, B, upper, unitriangular):
    """X with A X = B, reading one triangle of A. (..., N, N), (..., N, K) -> (..., N, K)."""
    check_lapack("linalg.solve_triangular", A)
    return matrices.solve_triangular(A, B, upper, unitriangular)


@_solve_triangular.joint
def _solve_triangular_gradient(grad, A, result, upper, unitriangular, needs):
    """As for _solve, and what was not read has no gradient."""
    of_b = _solve_triangular(adjoint(A), grad, not upper, unitriangular)
    if not needs["A"]:
        return {"B": of_b}
    of_a = -(of_b @ adjoint(result))
    return {"B": of_b, "A": of_a.triu(int(unitriangular)) if upper else of_a.tril(-int(unitriangular))}


_solve_triangular.meta(shape_rules.system)


@composite(name="linalg.solve_triangular", method=False, out=True)
def solve_triangular(A, B, *, upper, left=True, unitriangular=False):
    """X with A X = B (X A = B if not `left`) for triangular A; with `unitriangular` its diagonal is taken for ones."""
    check_same_dtype("linalg.solve_triangular", A, B)
    check_system("linalg.solve_triangular", A._array, B._array, left)
    if left:
        return _solve_triangular(A, B, bool(upper), bool(unitriangular))
    return transposed(_solve_triangular(transposed(A), transposed(B), not upper, bool(unitriangular)))


_TriangularSolve = named_result("triangular_solve", "solution cloned_coefficient")


@composite(public=True, out=True)
def triangular_solve(input, A, upper=True, transpose=False, unitriangular=False):
    """(X, a copy of A) with A X = input for triangular A (A^T X = input with `transpose`). The older form of linalg.solve_triangular."""
    for name, t in (("b", input), ("A", A)):
        if t.dim() < 2:
            raise RuntimeError(
                f"torch.triangular_solve: Expected {name} to have at least 2 dimensions, but it has {t.dim()} dimensions instead"
            )
    check_same_dtype("triangular_solve", input, A, "b and A")
    check_system("triangular_solve", A._array, input._array, True)
    coefficient, upper = (transposed(A), not upper) if transpose else (A, upper)
    solution = _solve_triangular(coefficient, input, bool(upper), bool(unitriangular))
    return _TriangularSolve(solution, A.expand((*solution.shape[:-2], *A.shape[-2:])).clone())


# -- with a Cholesky factor ------------------------------------------------------------------------------------------------


def _factored(xp, L, B, upper):
    """X with A X = B on arrays, A being given by its Cholesky factor."""
    lower = xp.swapaxes(L, -1, -2).conj() if upper else L
    half = matrices.solve_triangular(lower, B, False, False)
    return matrices.solve_triangular(xp.swapaxes(lower, -1, -2).conj(), half, True, False)


def _factor_gradient(of_a, L, upper):
    """From the gradient of A = L L^H (or U^H U) to that of the factor."""
    both = of_a + adjoint(of_a)
    return L @ both if upper else both @ L


@from_lapack()
def _cholesky_solve(input, L, upper):
    check_lapack("cholesky_solve", L)
    return _factored(arrays.module_of(L), L, input, upper)


@_cholesky_solve.joint
def _(grad, L, result, upper, needs):
    of_b = _cholesky_solve(grad, L, upper)
    return {"input": of_b, "L": _factor_gradient(-(of_b @ adjoint(result)), L, upper) if needs["L"] else None}


@composite(out=True)
def cholesky_solve(input, L, upper=False):
    """X with A X = input, given the Cholesky factor of A: A = L L^H, or U^H U if `upper`. (..., N, K), (..., N, N) -> (..., N, K)."""
    for name, t in (("b", input), ("u", L)):
        if t.dim() < 2:
            raise RuntimeError(f"{name} should have at least 2 dimensions, but has {t.dim()} dimensions instead (cholesky_solve)")
    check_same_dtype("cholesky_solve", input, L, "b and A")
    check_system("cholesky_solve", L._array, input._array, True)
    return _cholesky_solve(input, L, bool(upper))


@from_lapack()
def _cholesky_inverse(L, upper):
    check_lapack("cholesky_inverse", L)
    xp = arrays.module_of(L)
    return _factored(xp, L, xp.broadcast_to(xp.eye(L.shape[-1], dtype=L.dtype), L.shape), upper)


_cholesky_inverse.derivative(L=lambda grad, L, result, upper: _factor_gradient(-(adjoint(result) @ grad @ adjoint(result)), L, upper))


@composite(out=True)
def cholesky_inverse(L, upper=False):
    """The inverse of A, given its Cholesky factor: A = L L^H, or U^H U if `upper`. (..., N, N) -> (..., N, N)."""
    check_square("cholesky_inverse", L._array)
    return _cholesky_inverse(L, bool(upper))


# -- least squares ---------------------------------------------------------------------------------------------------------


@from_lapack(name="linalg_lstsq", returns="solution residuals rank singular_values")
def _lstsq(A, B, rcond, driver):
    """The solution of least norm by the singular value decomposition, whatever the driver; the driver decides which results are given."""
    xp = arrays.module_of(A)
    m, n = A.shape[-2:]
    u, s, vh = _svd_arrays(A)
    cut = rcond * (s[..., :1] if s.shape[-1] else s)
    kept = (s > cut) if driver != "gels" else xp.ones(s.shape, bool)
    with np.errstate(all="ignore"):
        inverse = xp.where(kept, 1 / s, 0).astype(s.dtype)
    x = xp.swapaxes(vh, -1, -2).conj() @ (inverse[..., None] * (xp.swapaxes(u, -1, -2).conj() @ B))
    rank = kept.sum(-1)
    residuals = xp.zeros(0, s.dtype)
    if m > n and driver != "gelsy" and bool((rank == n).all()):
        off = A @ x - B
        residuals = xp.asarray((off.real**2 + off.imag**2 if off.dtype.kind == "c" else off**2).sum(-2))
    no_rank, no_values = driver == "gels", driver in ("gels", "gelsy")
    return x, residuals, xp.zeros(0, np.int64) if no_rank else xp.asarray(rank, np.int64), xp.zeros(0, s.dtype) if no_values else s


def _svd_arrays(a):
    try:
        return matrices.svd(a, False)
    except np.linalg.LinAlgError:
        raise LinAlgError("linalg.lstsq: the singular value decomposition did not converge: are there NaNs in the input?") from None


@_lstsq.joint
def _lstsq_gradient(grads, A, B, solution, needs):
    """X = A^+ B, and the residuals sum |A X - B|^2, in which a change of X is of second order."""
    grad, of_residuals = grads[0], grads[1] if len(grads) > 1 else None
    inverse = _pinv(A, None, None, False)
    of_a = of_b = None
    if grad is not None:
        of_a = _pinv_gradient(grad @ adjoint(B), inverse, A) if needs["A"] else None
        of_b = adjoint(inverse) @ grad
    if of_residuals is not None and of_residuals.numel():
        off = 2 * (A @ solution - B) * of_residuals.unsqueeze(-2)
        of_a = off @ adjoint(solution) if of_a is None else of_a + off @ adjoint(solution)
        of_b = -off if of_b is None else of_b - off
    return {"A": of_a, "B": of_b}


@composite(name="linalg.lstsq", method=False)
def lstsq(A, B, rcond=None, *, driver=None):
    """X that makes |A X - B| least, of all such X the shortest. (..., M, N), (..., M, K) or (..., M) -> (..., N, K) or (..., N).

    Returns (solution, residuals, rank, singular_values); what the driver does not compute is empty: 'gelsy' (the default) gives the rank,
    'gelsd' and 'gelss' the singular values and residuals too, 'gels' takes A to have full rank and gives the residuals.
    """
    name = "torch.linalg.lstsq"
    check_matrices(name, A._array, "input")
    if B.dim() < 1:
        raise RuntimeError(f"{name}: other must have at least 1 dimension.")
    driver = driver or "gelsy"
    if driver not in ("gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError(f"{name}: parameter `driver` should be one of (gels, gelsy, gelsd, gelss), found {driver!r}")
    check_same_dtype(name, A, B, "input and other")
    check_float(name, A._array)
    vectors = vector_as_matrix(A, B)
    if vectors:
        B = B.unsqueeze(-1)
    if B.dim() < 2 or A.shape[-2] != B.shape[-2]:
        raise RuntimeError(
            f"{name}: input.size(-2) should match other.size(-2), found {tuple(A.shape)} and {tuple(B.shape)}. "
            "A vector on the right is (..., M)"
        )
    if rcond is None:
        rcond = max(A.shape[-2:]) * float(np.finfo(A._array.dtype).eps)
    elif hasattr(rcond, "_array"):
        rcond = rcond.item()
    batch = layout.broadcast_shapes(tuple(A.shape[:-2]), tuple(B.shape[:-2]))
    found = _lstsq(A.expand((*batch, *A.shape[-2:])), B.expand((*batch, *B.shape[-2:])), rcond, driver)
    if not vectors:
        return found
    return type(found)(found.solution.squeeze(-1), *found[1:])


# -- pseudo-inverses -------------------------------------------------------------------------------------------------------


@from_lapack(name="linalg_pinv")
def _pinv(A, atol, rtol, hermitian):
    """V S^-1 U^H, without the singular values below max(atol, rtol * the largest)."""
    xp = arrays.module_of(A)
    m, n = A.shape[-2:]
    if 0 in (m, n):
        return xp.zeros((*A.shape[:-2], n, m), A.dtype)
    if hermitian:
        s, v = matrices.eigh(A, "L")
        u, vh, size = v, xp.swapaxes(v, -1, -2).conj(), abs(s)
    else:
        u, s, vh = _svd_arrays(A)
        size = s
    cut = _cutoff(xp, size, atol, rtol, m, n)
    with np.errstate(all="ignore"):
        inverse = xp.where(size > cut, 1 / s, 0).astype(s.dtype)
    return (xp.swapaxes(vh, -1, -2).conj() * inverse[..., None, :]) @ xp.swapaxes(u, -1, -2).conj()


def _cutoff(xp, size, atol, rtol, m: int, n: int):
    """max(atol, rtol * the largest): below that a singular value counts as zero. rtol is max(M, N) eps unless either is given."""
    if rtol is None:
        rtol = max(m, n) * float(np.finfo(size.dtype).eps) if atol is None else 0.0
    largest = size.max(-1, keepdims=True)
    relative = largest * (rtol[..., None] if getattr(rtol, "ndim", 0) else rtol)
    absolute = 0.0 if atol is None else atol[..., None] if getattr(atol, "ndim", 0) else atol
    return xp.maximum(relative, absolute)


def _pinv_gradient(grad, result, A):
    """For P = A^+:  dP = -P dA P + P P^H dA^H (I - A P) + (I - P A) dA^H P^H P."""
    turned, back = adjoint(result), adjoint(grad)
    found = -(turned @ grad @ turned)
    right = back @ (result @ turned)  # g^H P P^H
    left = (turned @ result) @ back  # P^H P g^H
    return found + (right - A @ (result @ right)) + (left - (left @ result) @ A)


_pinv.derivative(A=lambda grad, result, A: _pinv_gradient(grad, result, A), atol=lambda grad: None, rtol=lambda grad: None)


@composite(name="linalg.pinv", method=False, out=True)
def pinv(A, rcond=None, hermitian=False, *, atol=None, rtol=None):
    """The pseudo-inverse. (..., M, N) -> (..., N, M). Singular values up to max(atol, rtol * the largest) count as zero."""
    _check_tolerances("linalg.pinv", A, atol, rtol)
    if rcond is not None:
        rtol = rcond
    if hermitian:
        check_square("linalg.pinv", A._array)
    return _pinv(A, atol, rtol, bool(hermitian))


def _check_tolerances(name: str, A, atol, rtol) -> None:
    check_matrices(name, A._array)
    if A.dtype not in (dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128):
        raise RuntimeError(
            f"{name}: expected a tensor with 2 or more dimensions of float, double, cfloat or cdouble types, found {A.dtype.name}"
        )
    for which, tolerance in (("atol", atol), ("rtol", rtol)):
        if hasattr(tolerance, "_array") and tolerance.is_complex():
            raise RuntimeError(f"{name}: {which} tensor of complex type is not supported.")


@composite
def pinverse(input, rcond=1e-15):
    """The pseudo-inverse; the older name of linalg.pinv."""
    return pinv(input, rcond)


# -- tensors as operators --------------------------------------------------------------------------------------------------


@composite(name="linalg.tensorinv", method=False, out=True)
def tensorinv(A, ind=2):
    """The inverse of A as an operator that takes its last dimensions to its first `ind`: tensordot(tensorinv(A), A, ind) is an identity."""
    if ind <= 0:
        raise RuntimeError(f"Expected a strictly positive integer for 'ind', found {ind}")
    shape = tuple(A.shape)
    rows, columns = prod(shape[:ind]), prod(shape[ind:])
    if rows != columns:
        raise RuntimeError(
            f"Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got {columns} != {rows}"
        )
    return inv(A.reshape((rows, columns))).reshape((*shape[ind:], *shape[:ind]))


@composite(name="linalg.tensorsolve", method=False, out=True)
def tensorsolve(A, B, dims=None):
    """X with tensordot(A, X, X.ndim) = B. `dims` of A are moved to its end first."""
    if dims is not None:
        A = A.movedim(tuple(dims), tuple(range(A.dim() - len(dims), A.dim())))
    shape = tuple(A.shape)[B.dim() :]
    columns = prod(shape)
    if columns != prod(tuple(A.shape)[: B.dim()]):
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim]), but got "
            f"{columns} != {prod(tuple(A.shape)[: B.dim()])}"
        )
    return solve(A.reshape((columns, columns)), B.reshape(-1)).reshape(shape)
