"""LU and LDL^T: factorisations made to solve many systems with one matrix.

A = P L U with a permutation P, a lower triangular L with ones on its diagonal, an upper triangular U. `lu_factor` packs L and U into one
matrix and P into pivots: row i was exchanged with row pivots[i] - 1, for i = 0, 1, ... `lu_unpack` takes them apart again.
"""

from __future__ import annotations

import numpy as np

from flambeau import dtypes
from flambeau.kernels import arrays, layout
from flambeau.kernels.linear_algebra import matrices
from flambeau.ops import specs
from flambeau.ops.declare import OPS, composite, on_arrays
from flambeau.ops.matrix import adjoint, check_float, check_matrices, check_system, from_lapack, identity_like, refuse
from flambeau.ops.solvers import _solve_triangular, stored_by_columns
from flambeau.ops.views import _unsafe_view

# -- LU --------------------------------------------------------------------------------------------------------------------


ZERO_PIVOT = (
    "U[{0},{0}] is zero: to solve with it would result in a division by zero. linalg.lu and linalg.lu_factor_ex factor such a "
    "matrix without complaint"
)


@from_lapack("linalg.lu_factor_ex", "M N, K int32, int32", returns="LU pivots info")
def lu_factor_ex(A, *, pivot=True, check_errors=False):
    """(LU, pivots, info): info is the position of the first zero on U's diagonal, 0 if there is none.

    (..., M, N) -> (..., M, N), (..., K), (...)
    """
    if not pivot and arrays.device_of(A).type == "cpu":
        raise RuntimeError("LU without pivoting is not implemented on the CPU, see linalg.lu_factor(pivot=True)")
    found = matrices.lu_factor(A, bool(pivot))
    if check_errors:
        refuse("torch.linalg.lu_factor_ex", found[2], ZERO_PIVOT.format, RuntimeError)
    return found


def _lu_factor_gradient(grads, LU, pivots):
    """The gradients of L and U lie in LU as L and U do."""
    P, L, U = lu_unpack(LU, pivots)
    k = min(LU.shape[-2:])
    of_l = grads[0].narrow(-1, 0, k).tril(-1)
    of_u = grads[0].narrow(-2, 0, k).triu()
    return _lu_gradient(of_l, of_u, P, L, U)


lu_factor_ex.derivative(A=_lu_factor_gradient)


def _lu_gradient(of_l, of_u, P, L, U):
    """gA = P L^-H (tril(L^H gL, -1) + triu(gU U^H)) U^-H for square A.

    A wide A is P L [U V], where V = L^-1 P^T Y also moves with L; a tall one is P [L; W] U, where W = Y U^-1 also moves with U.
    """
    m, n = L.shape[-2], U.shape[-1]
    k = min(m, n)
    turned_l, turned_u = adjoint(L.narrow(-2, 0, k)), adjoint(U.narrow(-1, 0, k))
    head_l, head_u = of_l.narrow(-2, 0, k), of_u.narrow(-1, 0, k)
    inside = (turned_l @ head_l).tril(-1) + (head_u @ turned_u).triu()
    if m < n:
        rest, of_rest = U.narrow(-1, k, n - k), of_u.narrow(-1, k, n - k)
        inside = inside - (of_rest @ adjoint(rest)).tril(-1)
    elif m > n:
        rest, of_rest = L.narrow(-2, k, m - k), of_l.narrow(-2, k, m - k)
        inside = inside - (adjoint(rest) @ of_rest).triu()
    found = _right_solve(_solve_triangular(turned_l, inside, True, True), turned_u)  # L^-H inside U^-H
    if m < n:
        found = OPS["cat"]([found, _solve_triangular(turned_l, of_rest, True, True)], -1)
    elif m > n:
        found = OPS["cat"]([found, _right_solve(of_rest, turned_u)], -2)
    return P @ found


def _right_solve(b, turned_u):
    """X with X U^H = b."""
    return _solve_triangular(turned_u.mT, b.mT, True, False).mT


@composite(name="linalg.lu_factor", method=False, out=True, returns="LU pivots")
def lu_factor(A, *, pivot=True):
    """(LU, pivots), packed, for linalg.lu_solve. (..., M, N) -> (..., M, N), (..., K)."""
    return lu_factor_ex(A, pivot=pivot, check_errors=True)[:2]


@composite(name="linalg.lu", method=False, out=True, returns="P L U", grad_name="LinalgLuBackward0")
def linalg_lu(A, *, pivot=True):
    """(P, L, U) with A = P L U. (..., M, N) -> (..., M, M), (..., M, K), (..., K, N)."""
    LU, pivots, _ = lu_factor_ex(A, pivot=pivot)
    return lu_unpack(LU, pivots)


@composite(public=True)
def lu(A, pivot=True, get_infos=False, out=None):
    """(LU, pivots), or (LU, pivots, info) with get_infos; the older form of linalg.lu_factor_ex."""
    found = lu_factor_ex(A, pivot=pivot, check_errors=not get_infos)
    wanted = tuple(found if get_infos else found[:2])
    if out is None:
        return wanted
    for target, source in zip(out, wanted, strict=True):
        target.resize_(tuple(source.shape)).copy_(source)
    return out


PIVOTS = {
    "lu_unpack": ("between 1 and LU.size(-2).",) * 2,
    "linalg.lu_solve": ("greater or equal to 1", "smaller or equal to LU.size(-2)"),
}  # what they are to be, in the words of whoever asks


@on_arrays(public=False, method=False)
def _permutation(LU, pivots, name):
    """The matrices P of the exchanges in `pivots`. (..., M, N), (..., K) -> (..., M, M)."""
    xp = arrays.module_of(LU)
    *batch, m, _ = LU.shape
    _check_pivots(name, pivots, m, *PIVOTS[name])
    count = int(np.prod(batch))
    order = xp.tile(xp.arange(m), (count, 1))
    each = xp.arange(count)
    steps = pivots.reshape(count, pivots.shape[-1]) - 1
    for i in range(steps.shape[1]):
        order[each, i], order[each, steps[:, i]] = order[each, steps[:, i]], order[each, i]
    P = xp.zeros((count, m, m), LU.dtype)
    P[each[:, None], order, xp.arange(m)] = 1  # row order[j] of A became row j of L U
    return P.reshape(*batch, m, m)


_permutation.meta(lambda LU, pivots, name: ((*LU.shape[:-1], LU.shape[-2]), LU.dtype))
_permutation.derivative(LU=lambda grad, LU_shape: grad.new_zeros(LU_shape))


def _check_pivots(name: str, size, most: int, not_less: str, not_more: str) -> None:
    """RuntimeError unless all pivots (or their sizes) name rows: nothing behind this looks at them again before it writes there."""
    for wrong, wanted in ((size < 1, not_less), (size > most, not_more)):
        if wrong.any():
            raise RuntimeError(f"{name}: Pivots given must all be {wanted}, found {int(size[wrong][0])} for matrices with {most} rows")


@composite(method=False, out=True, returns="P L U")
def lu_unpack(LU_data, LU_pivots, unpack_data=True, unpack_pivots=True):
    """(P, L, U) from what lu_factor packed. What is not unpacked is empty."""
    check_matrices("lu_unpack", LU_data, "LU_data")
    if unpack_pivots and LU_pivots.dtype is not dtypes.int32:
        raise RuntimeError(f"torch.lu_unpack: LU_pivots must have torch.int32 dtype, as lu_factor gives them, found {LU_pivots.dtype}")
    m, n = LU_data.shape[-2:]
    k = min(m, n)
    P = L = U = LU_data.new_empty((0,))
    if unpack_pivots:
        P = _permutation(LU_data.detach(), LU_pivots, "lu_unpack")
    if unpack_data:
        L = LU_data.narrow(-1, 0, k).tril(-1)
        ones = identity_like(LU_data, max(m, k)).narrow(1, 0, k)
        L, U = L + ones, LU_data.narrow(-2, 0, k).triu()
    return P, L, U


@composite(name="linalg.lu_solve", method=False, out=True, grad_name="LinalgLuSolveBackward0", autocast="cpu given")
def linalg_lu_solve(LU, pivots, B, *, left=True, adjoint=False):
    """X with A X = B (X A = B if not `left`; A^H instead of A with `adjoint`), given the LU factors of A. (..., N, K) -> (..., N, K)."""
    _check_lu_solve("linalg.lu_solve", LU, pivots, B, left)
    P = _permutation(LU.detach(), pivots, "linalg.lu_solve")
    _, L, U = lu_unpack(LU, pivots, unpack_pivots=False)
    if not left:  # X A = B  is  A^H X^H = B^H
        found = _turned(_lu_apply(P, L, U, _turned(B), not adjoint))
        return _unsafe_view(found, tuple(found.shape))  # row-major, as PyTorch's is
    return _lu_apply(P, L, U, B, adjoint)


_turned = adjoint  # `adjoint` is a parameter above


def _lu_apply(P, L, U, B, turned: bool):
    if turned:
        half = _solve_triangular(_turned(U), B, False, False)
        return stored_by_columns(P @ _solve_triangular(_turned(L), half, True, True))
    half = _solve_triangular(L, P.mT @ B, False, True)
    return _solve_triangular(U, half, True, False)


def _check_lu_solve(name: str, LU, pivots, B, left: bool) -> None:
    if pivots.dtype is not dtypes.int32:
        raise RuntimeError(f"{name}: pivots must be of torch.int32, found {pivots.dtype}")
    check_float(name, LU)
    check_system(name, LU, B, left, "LU and B")
    if pivots.shape[-1] != LU.shape[-1]:
        raise RuntimeError(f"{name}: there must be one pivot for each row of a matrix, found {pivots.shape[-1]}")
    if tuple(pivots.shape[:-1]) != tuple(LU.shape[:-2]):
        raise RuntimeError(f"{name}: pivots must have the shape of LU without its columns, {LU.shape[:-1]}, found {pivots.shape}")


@composite(out=True, autocast="cpu float32")
def lu_solve(input, LU_data, LU_pivots):
    """X with A X = input, given the LU factors of A; the older form of linalg.lu_solve."""
    return linalg_lu_solve(LU_data, LU_pivots, input)


# -- LDL^T -----------------------------------------------------------------------------------------------------------------


ZERO_BLOCK = "The block {} of D is zero: the factorization was completed, but D is singular and cannot be used to solve a system."


@from_lapack("linalg.ldl_factor_ex", "N N, N int32, int32", square=True, returns="LD pivots info", differentiable=False)
def ldl_factor_ex(A, *, hermitian=False, check_errors=False):
    """(LD, pivots, info) of symmetric (or Hermitian) matrices: L and the block-diagonal D packed in one lower triangle."""
    found = matrices.ldl_factor(A, bool(hermitian))
    if check_errors:
        refuse("torch.linalg.ldl_factor_ex", found[2], ZERO_BLOCK.format)
    return found


@composite(name="linalg.ldl_factor", method=False, out=True, returns="LD pivots")
def ldl_factor(A, *, hermitian=False):
    """(LD, pivots), packed, for linalg.ldl_solve; only the lower triangle of A is read."""
    return ldl_factor_ex(A, hermitian=hermitian, check_errors=True)[:2]


@from_lapack("linalg.ldl_solve", "", square=True)
def ldl_solve(LD, pivots, B, *, hermitian=False):
    """X with A X = B, given the LDL^T factors of A. (..., N, N), (..., N), (..., N, K) -> (..., N, K)."""
    name = "torch.linalg.ldl_solve"
    check_system(name, LD, B, names="LD and B")
    if pivots.dtype.kind not in "iu":
        raise RuntimeError(f"{name}: Expected pivots to be integers. Got {pivots.dtype}")
    if tuple(pivots.shape) != tuple(LD.shape[:-1]):
        raise RuntimeError(f"{name}: pivots must have the shape of LD without its columns, {LD.shape[:-1]}, found {pivots.shape}")
    _check_pivots(name, abs(pivots), LD.shape[-2], "such that |pivot| >= 1", "such that |pivot| <= LD.size(-2)")
    open_pair = arrays.module_of(pivots).zeros(pivots.shape[:-1], bool)
    for i in range(pivots.shape[-1]):
        open_pair = (pivots[..., i] < 0) & ~open_pair
    if open_pair.any():
        raise RuntimeError(f"{name}: negative pivots stand for blocks of two rows, and come in pairs; found one without a second")
    return matrices.ldl_solve(LD, pivots, B, bool(hermitian))


@ldl_solve.meta
def _(LD, pivots, B, *, hermitian=False):
    check_system("torch.linalg.ldl_solve", LD, B, names="LD and B")
    return specs.by_columns((*layout.broadcast_shapes(tuple(LD.shape[:-2]), tuple(B.shape[:-2])), *B.shape[-2:]), B.dtype)
