"""Linear algebra: inverses, systems, factorisations, norms, functions of matrices; with first and second derivatives."""

# ruff: noqa: B023 - every lambda is called before its loop goes on

from __future__ import annotations

import pickle
from math import inf

import numpy as np
import pytest
from matrix_oracle import COMPLEX, REAL, check, check_raises, hermitian, numbers, ours, positive, torch

import flambeau
from flambeau.kernels.linear_algebra import matrices

pytestmark = [
    pytest.mark.filterwarnings("ignore:torch\\..* is deprecated"),
    pytest.mark.filterwarnings("ignore:Casting complex values to real"),
]
BOTH = pytest.mark.parametrize("dtype", [REAL, COMPLEX], ids=["real", "complex"])
BATCHES = pytest.mark.parametrize("batch", [(), (2,), (2, 1), (0,)], ids=str)


# -- determinants ----------------------------------------------------------------------------------------------------------


@BOTH
@BATCHES
def test_determinants(dtype, batch):
    """det, slogdet, logdet, of batches, of nothing, of 0 x 0 matrices: values and derivatives are PyTorch's."""
    a = numbers(*batch, 3, 3, dtype=dtype)
    check(lambda t, a: t.linalg.det(a), a)
    check(lambda t, a: t.linalg.slogdet(a), a)
    check(lambda t, a: t.logdet(a), positive(*batch, 3, 3, dtype=dtype) if batch != (0,) else a)
    check(lambda t, a: t.det(a), numbers(*batch, 0, 0, dtype=dtype), gradient=False)


def test_determinant_of_a_singular_matrix():
    """The derivative of det is the adjugate, which a singular matrix has too; a matrix of rank n - 2 has zero."""
    for a in ([[1.0, 2.0], [2.0, 4.0]], [[1.0, 1, 0], [1, 1, 0], [0, 0, 2]], [[1.0, 1, 1], [1, 1, 1], [1, 1, 1]], [[0.0, 0], [0, 0]]):
        x = flambeau.tensor(a, dtype=flambeau.float64, requires_grad=True)
        flambeau.linalg.det(x).backward()
        n = len(a)
        minors = [[np.linalg.det(np.delete(np.delete(np.array(a), i, 0), j, 1)) * (-1) ** (i + j) for j in range(n)] for i in range(n)]
        np.testing.assert_allclose(x.grad.numpy(), minors, atol=1e-12)


def test_logdet_of_what_has_none():
    """logdet is -inf for a singular matrix and NaN for a negative determinant."""
    check(lambda t, a: t.logdet(a), torch.zeros(2, 2), gradient=False)
    check(lambda t, a: t.logdet(a), torch.diag(torch.tensor([1.0, -1.0])), gradient=False)


# -- inverses and systems --------------------------------------------------------------------------------------------------


@BOTH
@BATCHES
def test_inverses(dtype, batch):
    """inv, inv_ex, pinv and their derivatives."""
    a = numbers(*batch, 3, 3, dtype=dtype)
    check(lambda t, a: t.linalg.inv(a), a)
    check(lambda t, a: t.inverse(a), a.mT)
    check(lambda t, a: t.linalg.inv_ex(a), a)
    for shape in ((3, 3), (4, 2), (2, 4)):
        check(lambda t, a: t.linalg.pinv(a), numbers(*batch, *shape, dtype=dtype), tolerance=1e-7)
    check(lambda t, a: t.linalg.pinv(a, hermitian=True), hermitian(*batch, 3, 3, dtype=dtype), second=False, tolerance=1e-7)


@BOTH
@pytest.mark.parametrize(
    "shapes", [((3, 3), (3, 2)), ((3, 3), (3,)), ((2, 3, 3), (2, 3)), ((2, 3, 3), (3, 1)), ((3, 3), (2, 3, 4)), ((0, 0), (0, 2))]
)
def test_solve(dtype, shapes):
    """A X = B for vectors, matrices and batches that broadcast, and X A = B."""
    a, b = (numbers(*s, dtype=dtype) for s in shapes)
    check(lambda t, a, b: t.linalg.solve(a, b), a, b)
    check(lambda t, a, b: t.linalg.solve_ex(a, b), a, b)
    if b.dim() > 1 and a.shape[-1] == b.shape[-2] and b.dim() != a.dim() - 1:
        check(lambda t, a, b: t.linalg.solve(a, b, left=False), a, b.mT)


@BOTH
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("unit", [False, True])
def test_triangular_systems(dtype, upper, unit):
    """solve_triangular reads one triangle, gives that one its gradient, and takes strided and broadcast matrices."""
    a, b = numbers(2, 1, 4, 4, dtype=dtype), numbers(3, 4, 2, dtype=dtype)
    for matrix in (a, a.mT, a.flip(-1)):
        check(lambda t, a, b: t.linalg.solve_triangular(a, b, upper=upper, unitriangular=unit), matrix, b, tolerance=1e-7)
    check(lambda t, a, b: t.linalg.solve_triangular(a, b, upper=upper, left=False, unitriangular=unit), a, b.mT, tolerance=1e-7)
    check(lambda t, a, b: t.triangular_solve(b, a, upper=upper, transpose=True, unitriangular=unit), a[0, 0], b[0], tolerance=1e-7)


def test_triangular_system_that_divides_by_zero():
    """A zero on the diagonal gives infinities and NaNs, never an error."""
    a = torch.tensor([[1.0, 2.0], [0.0, 0.0]], dtype=REAL)
    check(lambda t, a, b: t.linalg.solve_triangular(a, b, upper=True), a, torch.ones(2, 1, dtype=REAL), gradient=False)


@BOTH
def test_cholesky_family(dtype):
    """cholesky, cholesky_ex, cholesky_solve, cholesky_inverse, lower and upper."""
    a, b = positive(2, 3, 3, dtype=dtype), numbers(2, 3, 2, dtype=dtype)
    for upper in (False, True):
        check(lambda t, a: t.linalg.cholesky(0.5 * (a + a.mH), upper=upper), a)
        check(lambda t, a: t.linalg.cholesky_ex(a, upper=upper), a, second=False)
        factor = torch.linalg.cholesky(a, upper=upper)
        check(lambda t, b, f: t.cholesky_solve(b, f, upper=upper), b, factor, tolerance=1e-7)
        check(lambda t, f: t.cholesky_inverse(f, upper=upper), factor, tolerance=1e-7)
    check(lambda t, a: t.cholesky(a), a, second=False)


@BOTH
@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss", None])
def test_least_squares(dtype, driver):
    """lstsq: the four drivers differ in what they report; tall, wide, batched, vectors, rank-deficient."""

    def solution(t, a, b):
        return t.linalg.lstsq(a, b, driver=driver).solution

    check(solution, numbers(5, 3, dtype=dtype), numbers(5, 2, dtype=dtype), tolerance=1e-7)
    check(solution, numbers(2, 3, 5, dtype=dtype), numbers(2, 3, 1, dtype=dtype), tolerance=1e-7)
    check(solution, numbers(2, 5, 3, dtype=dtype), numbers(2, 5, dtype=dtype), tolerance=1e-7)
    check(lambda t, a, b: t.linalg.lstsq(a, b, driver=driver), numbers(2, 5, 3, dtype=dtype), numbers(2, 5, 2, dtype=dtype), gradient=False)
    if driver not in ("gels",):
        low = numbers(5, 2, dtype=dtype) @ numbers(2, 4, dtype=dtype)
        check(lambda t, a, b: t.linalg.lstsq(a, b, driver=driver), low, numbers(5, 2, dtype=dtype), gradient=False, tolerance=1e-7)


def test_tensor_systems():
    """tensorinv and tensorsolve treat a tensor as an operator on tensors."""
    a = numbers(6, 2, 3)
    check(lambda t, a: t.linalg.tensorinv(a, ind=1), a, tolerance=1e-7)
    check(lambda t, a: t.linalg.tensorinv(a.reshape(2, 3, 3, 2)), numbers(6, 6), tolerance=1e-7)
    check(lambda t, a, b: t.linalg.tensorsolve(a, b), a, numbers(6), tolerance=1e-7)
    check(lambda t, a, b: t.linalg.tensorsolve(a, b, dims=(0, 2)), numbers(2, 6, 3), numbers(6), tolerance=1e-7)


# -- factorisations --------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4), (2, 3, 3), (0, 3), (3, 0), (2, 0, 0)], ids=str)
def test_qr(dtype, shape):
    """Q R = A with Q orthonormal; derivatives for square, tall and wide matrices."""
    a = numbers(*shape, dtype=dtype)
    check(lambda t, a: t.linalg.qr(a), a, tolerance=1e-7)
    check(lambda t, a: t.linalg.qr(a, mode="complete"), a, gradient=shape[-2] <= shape[-1], tolerance=1e-7)
    check(lambda t, a: t.linalg.qr(a, mode="r"), a, gradient=False)
    check(lambda t, a: t.qr(a, some=False), a, gradient=False)


@BOTH
@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4), (2, 3, 2), (0, 3)], ids=str)
@pytest.mark.parametrize("full", [False, True])
def test_svd(dtype, shape, full):
    """Singular values and vectors, by what does not depend on the vectors' phases."""
    a = numbers(*shape, dtype=dtype)

    def invariant(t, a):
        u, s, vh = t.linalg.svd(a, full_matrices=full)
        k = s.shape[-1]
        u, vh = u.narrow(-1, 0, k), vh.narrow(-2, 0, k)
        return s, u.abs(), vh.abs(), u @ vh

    check(invariant, a, tolerance=1e-7)
    check(lambda t, a: t.linalg.svdvals(a), a)
    check(lambda t, a: t.svd(a, some=not full).S, a)
    check(lambda t, a: tuple(t.svd(a, compute_uv=False)), a, gradient=False)


@BOTH
@pytest.mark.parametrize("uplo", ["L", "U"])
def test_eigh(dtype, uplo):
    """Eigenvalues and vectors of Hermitian matrices: only one triangle is read."""

    def invariant(t, a):
        values, vectors = t.linalg.eigh(a, UPLO=uplo)
        return values, vectors.abs()

    a = hermitian(2, 4, 4, dtype=dtype)
    check(invariant, a, second=False, tolerance=1e-7)
    check(lambda t, a: invariant(t, a + a.mH), a, tolerance=1e-7)
    check(lambda t, a: t.linalg.eigvalsh(a, UPLO=uplo), a, tolerance=1e-7)
    check(lambda t, a: t.linalg.eigvalsh(a, UPLO=uplo), numbers(3, 3, dtype=dtype), gradient=False)


@BOTH
def test_eig(dtype):
    """Eigenvalues and vectors of square matrices, in an order both frameworks take from LAPACK."""

    def invariant(t, a):
        values, vectors = t.linalg.eig(a)
        return values, vectors.abs()

    a = numbers(2, 3, 3, dtype=dtype)
    check(invariant, a, tolerance=1e-7)
    check(lambda t, a: t.linalg.eigvals(a), a, tolerance=1e-7)


def test_phases_have_no_gradient():
    """A function of complex singular vectors or eigenvectors that notices their phase is refused in backward, as PyTorch does."""
    a = ours(hermitian(3, 3, dtype=COMPLEX)).requires_grad_()
    with pytest.raises(RuntimeError, match="e\\^"):
        flambeau.linalg.eigh(a).eigenvectors.imag.sum().backward()
    with pytest.raises(RuntimeError, match="e\\^"):
        flambeau.linalg.svd(a).U.imag.sum().backward()


@BOTH
@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4), (2, 3, 3), (0, 3)], ids=str)
def test_lu(dtype, shape):
    """LU in its packed and unpacked forms, for square, tall and wide matrices."""
    a = numbers(*shape, dtype=dtype)
    check(lambda t, a: t.linalg.lu_factor_ex(a), a)
    check(lambda t, a: t.linalg.lu(a), a)
    check(lambda t, a: t.lu(a), a, second=False)
    check(lambda t, a: t.lu_unpack(*t.linalg.lu_factor(a)), a, second=False)


@BOTH
def test_lu_solve(dtype):
    """Systems with factored matrices, from the left and right, with the matrix and its adjoint."""
    a, b = numbers(2, 3, 3, dtype=dtype), numbers(2, 3, 2, dtype=dtype)
    for left in (True, False):
        for turned in (True, False):
            check(
                lambda t, a, b: t.linalg.lu_solve(*t.linalg.lu_factor(a), b, left=left, adjoint=turned),
                a,
                b if left else b.mT,
                tolerance=1e-7,
            )
    check(lambda t, a, b: t.lu_solve(b, *t.linalg.lu_factor(a)), a, b, tolerance=1e-7)


@BOTH
def test_ldl(dtype):
    """Symmetric and Hermitian indefinite systems."""
    pytest.importorskip("scipy_openblas32")  # NumPy's LAPACK does not have it
    for turned in (False, True):
        a = hermitian(2, 4, 4, dtype=dtype) if turned else numbers(2, 4, 4, dtype=dtype)
        a = a if turned else a + a.mT
        check(lambda t, a: t.linalg.ldl_factor(a, hermitian=turned), a, gradient=False)
        factors = torch.linalg.ldl_factor(a, hermitian=turned)
        check(lambda t, *x: t.linalg.ldl_solve(*x, hermitian=turned), *factors, numbers(2, 4, 3, dtype=dtype), gradient=False)


@BOTH
def test_householder(dtype):
    """Reflections: geqrf packs them, householder_product multiplies them out, ormqr applies them."""
    for shape in ((4, 3), (3, 3), (2, 4, 2)):
        a = numbers(*shape, dtype=dtype)
        check(lambda t, a: t.geqrf(a), a, gradient=False)
        packed, tau = torch.geqrf(a)
        check(lambda t, p, s: t.linalg.householder_product(p, s), packed, tau, second=False)
        check(lambda t, p, s: t.orgqr(p, s), packed, tau, gradient=False)
        for left in (True, False):
            for turned in (True, False):
                other = numbers(*shape[:-2], *((shape[-2], 2) if left else (2, shape[-2])), dtype=dtype)
                check(lambda t, p, s, o: t.ormqr(p, s, o, left, turned), packed, tau, other, second=False)


# -- norms -----------------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("order", [0, 1, 2, 3, 0.5, 1.5, -1, -2.5, inf, -inf])
def test_vector_norms(dtype, order):
    """Norms of any order over any dimensions."""
    x = numbers(3, 4, dtype=dtype)
    for dim in (None, 0, (0, 1), -1):
        check(lambda t, x: t.linalg.vector_norm(x, order, dim), x, second=order in (2, 3, 1.5))
        check(lambda t, x: t.linalg.vector_norm(x, order, dim, keepdim=True), x, second=False)
    check(lambda t, x: t.norm(x, order), x, second=False)
    check(lambda t, x: x.norm(order, dim=1), x.mT, second=False)
    check(lambda t, x: t.linalg.vector_norm(x, order), numbers(dtype=dtype), second=False)


@pytest.mark.parametrize("order", [1, 2, 3, 1.5, inf, "fro", "nuc"])
def test_norm_of_zero_has_the_gradient_zero(order):
    """At a kink the subgradient of least norm: 0 at 0, never NaN."""
    if order == "nuc":
        check(lambda t, x: t.linalg.matrix_norm(x, "nuc"), torch.zeros(2, 2, dtype=REAL), gradient=False)
        return
    check(lambda t, x: t.norm(x, order), torch.zeros(3, dtype=REAL), second=False)
    check(lambda t, x: t.norm(x, order), torch.tensor([0.0, 1.0, 0.0, -1.0], dtype=REAL), second=False)


@BOTH
@pytest.mark.parametrize("order", ["fro", "nuc", 2, -2, 1, -1, inf, -inf])
def test_matrix_norms(dtype, order):
    """Norms of matrices in any two dimensions."""
    x = numbers(2, 3, 4, dtype=dtype)
    for dim in ((-2, -1), (0, 1), (2, 0)):
        check(lambda t, x: t.linalg.matrix_norm(x, order, dim), x, second=False, tolerance=1e-7)
        check(lambda t, x: t.linalg.matrix_norm(x, order, dim, keepdim=True), x, gradient=False)
    check(lambda t, x: t.linalg.norm(x, order), x[0], second=False, tolerance=1e-7)
    if order not in (-2, -1, -inf):
        check(lambda t, x: t.linalg.matrix_norm(x, order), numbers(0, 3, dtype=dtype), gradient=False)


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("order", ["fro", "nuc", 2, -2, 1, -1, inf, -inf])
def test_matrix_norms_come_from_the_same_node(order, keepdim):
    """What a norm is printed with, and how it lies in memory."""
    x = numbers(2, 3, 4, dtype=REAL)
    for dim in ((-2, -1), (0, 2), (2, 0)):
        found, wanted = (
            t.linalg.matrix_norm(t.tensor(x.tolist(), requires_grad=True), order, dim, keepdim=keepdim) for t in (flambeau, torch)
        )
        assert (found.grad_fn.name(), found.stride()) == (wanted.grad_fn.name(), wanted.stride())


def test_norm_dtypes():
    """Half precision is summed in float32; dtype= widens, and never narrows or crosses from real to complex."""
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        x = numbers(50, 40, dtype=dtype)
        check(lambda t, x: t.norm(x), x, gradient=False)
        check(lambda t, x: t.norm(x, 1, dim=0), x, gradient=False)
        check(lambda t, x: t.norm(x, 3, dim=0), x, gradient=False)
        check(lambda t, x: t.norm(x, dtype=t.float64), x, second=False)
    check(lambda t, x: t.linalg.vector_norm(x, dtype=t.complex128), numbers(3, dtype=torch.complex64), second=False)
    check_raises(lambda t, x: t.norm(x), numbers(3, dtype=torch.int64))
    check_raises(lambda t, x: t.norm(x, dtype=t.float32), numbers(3))
    check_raises(lambda t, x: t.linalg.vector_norm(x, dtype=t.float64), numbers(3, dtype=COMPLEX))
    check_raises(lambda t, x: t.linalg.vector_norm(x, inf), numbers(0))
    check_raises(lambda t, x: t.linalg.vector_norm(x, "fro"), numbers(3))
    check_raises(lambda t, x: t.norm(x, "nuc", dim=0), numbers(3, 3))
    check_raises(lambda t, x: t.linalg.norm(x, 2), numbers(3, 3, 3))


def test_distances():
    """dist, renorm, cdist, pdist, pairwise_distance; two equal points have a zero gradient."""
    x, y = numbers(3, 4), numbers(5, 4)
    check(lambda t, a, b: t.dist(a, b, 3), x, numbers(4))
    for p in (0, 0.5, 1, 1.5, 2, 3, inf):
        check(lambda t, a, b: t.cdist(a, b, p), x, y, second=False)
        check(lambda t, a: t.pdist(a, p), x, second=False)
        check(lambda t, a, b: t.pairwise_distance(a, b, p), x, y[:3], second=False)
        if p:
            check(lambda t, a: t.renorm(a, p, 0, 1.5), x, second=False)
    check(lambda t, a, b: t.cdist(a, b), x, torch.cat([x[:1], y]), second=False)
    check(lambda t, a, b: t.cdist(a, b), numbers(2, 1, 3, 4), numbers(4, 5, 4), second=False)
    check(lambda t, a, b: t.cdist(a, b), numbers(30, 4), numbers(40, 4), second=False, tolerance=1e-6)
    check(lambda t, a, b: t.cdist(a, b), numbers(0, 4), y, gradient=False)
    check_raises(lambda t, a, b: t.cdist(a, b), x, numbers(3, 5))
    check_raises(lambda t, a, b: t.cdist(a, b, compute_mode="quickly"), x, y)


# -- functions of matrices -------------------------------------------------------------------------------------------------


@BOTH
def test_matrix_functions(dtype):
    """Powers, exponentials, condition numbers, ranks."""
    a = numbers(2, 3, 3, dtype=dtype)
    for n in (0, 1, 2, 5, -1, -3):
        check(lambda t, a: t.linalg.matrix_power(a, n), a, tolerance=1e-6, second=n > 1)
    check(lambda t, a: t.linalg.matrix_exp(a), a, tolerance=1e-8)
    check(lambda t, a: t.matrix_exp(a), 40 * a, gradient=False, tolerance=1e-7)
    check(lambda t, a: t.matrix_exp(a), numbers(0, 0, dtype=dtype), gradient=False)
    for p in (None, 2, -2, "fro", "nuc", 1, -1, inf, -inf):
        check(lambda t, a: t.linalg.cond(a, p), a, second=False, tolerance=1e-7, gradient=p in (None, 2, -2, "nuc"))
        check(lambda t, a: t.linalg.cond(a, p), a[0], gradient=False)
    low = numbers(4, 2, dtype=dtype) @ numbers(2, 3, dtype=dtype)
    check(lambda t, a: t.linalg.matrix_rank(a), low, gradient=False)
    check(lambda t, a: t.linalg.matrix_rank(a, atol=2.0, rtol=0.1), a, gradient=False)
    check(lambda t, a: t.linalg.matrix_rank(a, hermitian=True), hermitian(3, 3, dtype=dtype), gradient=False)


def test_condition_of_singular_matrices():
    """A singular matrix has the condition number inf in the norms that need an inverse."""
    a = torch.stack([torch.eye(2, dtype=REAL), torch.ones(2, 2, dtype=REAL)])
    check(lambda t, a: t.linalg.cond(a, 1), a, gradient=False)


@BOTH
def test_small_ones(dtype):
    """trace, diagonal, vander, multi_dot, chain_matmul."""
    a = numbers(3, 4, dtype=dtype)
    check(lambda t, a: t.trace(a), a, second=False)
    check(lambda t, a: t.linalg.diagonal(a, offset=1), a, second=False)
    check(lambda t, x: t.linalg.vander(x, N=4), numbers(2, 3, dtype=dtype))
    parts = [numbers(*s, dtype=dtype, seed=i) for i, s in enumerate([(5,), (5, 2), (2, 7), (7, 3), (3,)])]
    check(lambda t, *parts: t.linalg.multi_dot(parts), *parts)
    check(lambda t, *parts: t.linalg.multi_dot(parts), *parts[:3])
    check(lambda t, *parts: t.linalg.multi_dot(parts), *parts[2:])
    check(lambda t, *parts: t.chain_matmul(*parts), *parts[1:4])


# -- the forms of calls ----------------------------------------------------------------------------------------------------


NAMED = {
    "linalg.svd": lambda t, a: t.linalg.svd(a), "linalg.qr": lambda t, a: t.linalg.qr(a), "linalg.eigh": lambda t, a: t.linalg.eigh(a),
    "linalg.eig": lambda t, a: t.linalg.eig(a), "linalg.slogdet": lambda t, a: t.linalg.slogdet(a), "slogdet": lambda t, a: t.slogdet(a),
    "linalg.inv_ex": lambda t, a: t.linalg.inv_ex(a), "linalg.cholesky_ex": lambda t, a: t.linalg.cholesky_ex(a),
    "svd": lambda t, a: t.svd(a), "qr": lambda t, a: t.qr(a), "geqrf": lambda t, a: t.geqrf(a), "linalg.lu": lambda t, a: t.linalg.lu(a),
    "linalg.lu_factor": lambda t, a: t.linalg.lu_factor(a), "linalg.lu_factor_ex": lambda t, a: t.linalg.lu_factor_ex(a),
    "lu_unpack": lambda t, a: t.lu_unpack(*t.linalg.lu_factor(a)), "linalg.ldl_factor": lambda t, a: t.linalg.ldl_factor(a),
    "linalg.ldl_factor_ex": lambda t, a: t.linalg.ldl_factor_ex(a), "linalg.lstsq": lambda t, a: t.linalg.lstsq(a, a),
    "linalg.solve_ex": lambda t, a: t.linalg.solve_ex(a, a), "triangular_solve": lambda t, a: t.triangular_solve(a, a),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
def test_results_have_names(name):
    """Several results come as PyTorch's named tuple: type, fields, and a round trip through pickle."""
    if "ldl" in name:
        pytest.importorskip("scipy_openblas32")
    a = positive(2, 2)
    theirs, mine = NAMED[name](torch, a), NAMED[name](flambeau, ours(a))
    assert type(mine).__name__ == type(theirs).__name__
    assert repr(mine).split("=")[0] == repr(theirs).split("=")[0]
    for field in type(mine)._fields:
        assert tuple(getattr(mine, field).shape) == tuple(getattr(theirs, field).shape)
    assert type(pickle.loads(pickle.dumps(type(mine)(*range(len(mine)))))) is type(mine)


def test_out():
    """out= receives the result, one tensor or several, and is returned."""
    a = ours(positive(3, 3))
    out = flambeau.empty(0, dtype=flambeau.float64)
    assert flambeau.linalg.inv(a, out=out) is out
    np.testing.assert_allclose(out.numpy(), np.linalg.inv(a.numpy()))
    outs = [flambeau.empty(0, dtype=flambeau.float64) for _ in range(2)]
    found = flambeau.linalg.eigh(a, out=tuple(outs))
    assert found.eigenvalues is outs[0]
    np.testing.assert_allclose(outs[0].numpy(), np.linalg.eigvalsh(a.numpy()))
    with pytest.raises(RuntimeError):
        flambeau.linalg.eigvals(a, out=out)  # complex results do not fit into a real tensor


ERRORS = {
    "not square": lambda t, a: t.linalg.inv(a[:2]),
    "a vector": lambda t, a: t.linalg.inv(a[0]),
    "singular": lambda t, a: t.linalg.inv(a * 0),
    "singular in a batch": lambda t, a: t.linalg.inv(t.stack([a, a * 0])),
    "singular system": lambda t, a: t.linalg.solve(a * 0, a),
    "checked inverse": lambda t, a: t.linalg.inv_ex(a * 0, check_errors=True),
    "not positive": lambda t, a: t.linalg.cholesky(-a),
    "not positive, old name": lambda t, a: t.cholesky(-a),
    "checked cholesky": lambda t, a: t.linalg.cholesky_ex(-a, check_errors=True),
    "nan has no svd": lambda t, a: t.linalg.svd(a * float("nan")),
    "nan has no eigenvalues": lambda t, a: t.linalg.eig(a * float("nan")),
    "integers": lambda t, a: t.linalg.inv(a.long()),
    "half": lambda t, a: t.linalg.svd(a.half()),
    "bfloat16": lambda t, a: t.linalg.eigh(a.bfloat16()),
    "two dtypes": lambda t, a: t.linalg.solve(a, a.float()),
    "shapes of a system": lambda t, a: t.linalg.solve(a, t.ones(4, 2, dtype=t.float64)),
    "mode of qr": lambda t, a: t.linalg.qr(a, mode="quick"),
    "uplo": lambda t, a: t.linalg.eigh(a, UPLO="X"),
    "driver": lambda t, a: t.linalg.lstsq(a, a, driver="fast"),
    "svd driver": lambda t, a: t.linalg.svd(a, driver="gesvd"),
    "zero pivot": lambda t, a: t.linalg.lu_factor(a * 0),
    "no pivoting": lambda t, a: t.linalg.lu(a, pivot=False),
    "int64 pivots": lambda t, a: t.lu_unpack(a, t.ones(3, dtype=t.int64)),
    "upper is needed": lambda t, a: t.linalg.solve_triangular(a, a),
    "power": lambda t, a: t.linalg.matrix_power(a, 1.5),
    "one matrix": lambda t, a: t.linalg.multi_dot([a]),
    "norm of a cond": lambda t, a: t.linalg.cond(a, 3),
    "too many reflections": lambda t, a: t.linalg.householder_product(a, t.ones(4, dtype=t.float64)),
    "trace of a vector": lambda t, a: t.trace(a[0]),
    "out of a derivative": lambda t, a: t.linalg.inv(a.requires_grad_(), out=t.empty(3, 3, dtype=t.float64)),
    "complete qr": lambda t, a: t.linalg.qr(a[:, :2].requires_grad_(), mode="complete").Q.sum().backward(),
    "r of qr": lambda t, a: t.linalg.qr(a.requires_grad_(), mode="r").R.sum().backward(),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    """What PyTorch refuses is refused, with its type of exception."""
    check_raises(ERRORS[name], positive(3, 3))


def test_the_failing_matrix_is_named():
    """In a batch the error says which matrix failed, and where."""
    a = torch.stack([torch.eye(3, dtype=REAL), torch.diag(torch.tensor([1.0, 0.0, 1.0], dtype=REAL))])
    with pytest.raises(flambeau.linalg.LinAlgError, match=r"Batch element 1\): The diagonal element 2 is zero"):
        flambeau.linalg.inv(ours(a))
    with pytest.raises(flambeau.linalg.LinAlgError, match=r"Batch element 1\).*leading minor of order 2"):
        flambeau.linalg.cholesky(ours(a))


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
def test_single_precision(dtype):
    """float32 and complex64 stay what they are."""
    a, b = positive(4, 4, dtype=dtype), numbers(4, 2, dtype=dtype)
    check(lambda t, a, b: t.linalg.solve(a, b), a, b, second=False, tolerance=1e-3)
    check(lambda t, a: t.linalg.cholesky(a), a, second=False, tolerance=1e-3)
    check(lambda t, a: t.linalg.eigvalsh(a), a, second=False, tolerance=1e-3)
    check(lambda t, a: t.linalg.qr(a), a, gradient=False, tolerance=1e-3)
    check(lambda t, a: t.linalg.matrix_exp(a / 8), a, second=False, tolerance=1e-3)


@pytest.mark.parametrize("dtype", [REAL, COMPLEX, torch.float32, torch.complex64], ids=str)
def test_larger_matrices(dtype):
    """Beyond 16 rows matrices go to LAPACK one by one: the same numbers, for batches, tall and wide ones too."""
    tolerance = 1e-7 if dtype in (REAL, COMPLEX) else 2e-2
    square, b = numbers(2, 20, 20, dtype=dtype), numbers(2, 20, 3, dtype=dtype)
    symmetric = hermitian(2, 20, 20, dtype=dtype)
    first = {"second": False, "tolerance": tolerance}
    check(lambda t, a: t.linalg.inv(a), square, **first)
    check(lambda t, a, b: t.linalg.solve(a, b), square[0], b, **first)
    check(lambda t, a: t.linalg.det(a), square, gradient=False, tolerance=tolerance)
    check(lambda t, a: t.linalg.slogdet(a), square, **first)
    check(lambda t, a: t.linalg.cholesky(a), positive(2, 20, 20, dtype=dtype), **first)
    check(lambda t, a: t.linalg.eigvalsh(a), symmetric, **first)
    check(lambda t, a: t.linalg.eigh(a, UPLO="U").eigenvectors.abs(), symmetric, gradient=False, tolerance=tolerance)
    for shape in ((20, 20), (2, 30, 20), (20, 30)):
        a = numbers(*shape, dtype=dtype)
        check(lambda t, a: t.linalg.svdvals(a), a, **first)
        for full in (False, True):
            check(lambda t, a: t.linalg.svd(a, full_matrices=full).S, a, gradient=False, tolerance=tolerance)
            u, s, vh = flambeau.linalg.svd(ours(a), full_matrices=full)
            k = s.shape[-1]
            np.testing.assert_allclose(
                ((u[..., :k] * s.unsqueeze(-2)) @ vh[..., :k, :]).numpy(), a.numpy(), atol=1e-3 if tolerance > 1e-3 else 1e-9
            )
            assert u.shape[-1] == (shape[-2] if full else k)
        check(lambda t, a: t.linalg.qr(a), a, gradient=False, tolerance=tolerance)
        check(lambda t, a: t.linalg.qr(a, mode="complete"), a, gradient=False, tolerance=tolerance)
        check(lambda t, a: t.linalg.qr(a, mode="r").R, a, gradient=False, tolerance=tolerance)
        check(lambda t, a: t.geqrf(a), a, gradient=False, tolerance=tolerance)
    values, vectors = flambeau.linalg.eig(ours(square))
    np.testing.assert_allclose((ours(square).to(values.dtype) @ vectors).numpy(), (vectors * values.unsqueeze(-2)).numpy(), atol=1e-3)
    np.testing.assert_allclose(np.sort_complex(flambeau.linalg.eigvals(ours(square)).numpy()), np.sort_complex(values.numpy()), atol=1e-3)
    check_raises(lambda t, a: t.linalg.svd(a * float("nan")), square)
    check_raises(lambda t, a: t.linalg.inv(a * 0), square)
    check_raises(lambda t, a: t.linalg.cholesky(-(a @ a.mH)), square)


def test_many_small_systems():
    """A batch of many small matrices is solved as a whole, to the same numbers."""
    a, b = numbers(100, 3, 3, dtype=COMPLEX), numbers(100, 3, 2, dtype=COMPLEX)
    check(lambda t, a: t.linalg.lu_factor_ex(a), a, second=False)
    check(lambda t, a, b: t.linalg.solve_triangular(a, b, upper=False), a, b, second=False, tolerance=1e-5)


def test_without_the_library(monkeypatch):
    """Without scipy-openblas32 LU and triangular systems are computed here, to the same numbers; LDL^T says what is missing."""

    a, b = numbers(3, 5, 5, dtype=COMPLEX), numbers(3, 5, 2, dtype=COMPLEX)
    monkeypatch.setattr(matrices, "library", lambda: None)
    check(lambda t, a: t.linalg.lu_factor_ex(a), a)
    check(lambda t, a, b: t.linalg.solve_triangular(a, b, upper=True), a, b, tolerance=1e-6)
    with pytest.raises(NotImplementedError, match="scipy-openblas32"):
        flambeau.linalg.ldl_factor(ours(a + a.mT))


def test_low_rank():
    """svd_lowrank and pca_lowrank find a matrix of low rank again."""
    a = ours(numbers(20, 3) @ numbers(3, 15))
    u, s, v = flambeau.svd_lowrank(a, 5)
    np.testing.assert_allclose(((u * s) @ v.mT).numpy(), a.numpy(), atol=1e-8)
    u, s, v = flambeau.pca_lowrank(a.mT, 4)
    np.testing.assert_allclose(((u * s) @ v.mT).numpy(), a.mT.numpy() - a.mT.numpy().mean(0), atol=1e-8)


@pytest.mark.parametrize("largest", [True, False])
def test_lobpcg(largest):
    """lobpcg finds the extreme eigenpairs of symmetric matrices, of pairs of matrices, and of batches."""
    a, b = positive(2, 30, 30), positive(30, 30)
    values, vectors = flambeau.lobpcg(ours(a), k=3, largest=largest, tol=1e-10)
    expected = np.linalg.eigvalsh(a.numpy())[:, ::-1] if largest else np.linalg.eigvalsh(a.numpy())
    np.testing.assert_allclose(values.numpy(), expected[:, :3], rtol=1e-6)
    np.testing.assert_allclose((ours(a) @ vectors).numpy(), (vectors * values.unsqueeze(-2)).numpy(), atol=1e-5)
    values, vectors = flambeau.lobpcg(ours(a[0]), k=2, B=ours(b), largest=largest, tol=1e-10)
    np.testing.assert_allclose((ours(a[0]) @ vectors).numpy(), (ours(b) @ vectors * values).numpy(), atol=1e-4)
    with pytest.raises(ValueError, match="3 x"):
        flambeau.lobpcg(ours(positive(3, 3)), k=2)


@pytest.mark.parametrize("largest", [True, False])
def test_derivative_and_digits_of_lobpcg(largest):
    """Close eigenvalues are found to few digits; or the derivative is not that of differences of one element."""
    a = numbers(6, 6)
    a = ours((a @ a.mT) / 10)
    start = flambeau.eye(6, 1, dtype=flambeau.float64)
    _, vectors = flambeau.lobpcg(a, k=1, X=start, largest=largest)
    exact = flambeau.linalg.eigh(a)[1][:, -1 if largest else 0]
    flambeau.testing.assert_close(vectors[:, 0].abs(), exact.abs(), atol=1e-7, rtol=0)
    pair = lambda a: [t.abs() for t in flambeau.lobpcg(a, k=1, X=start, largest=largest)]  # noqa: E731
    assert flambeau.autograd.gradcheck(pair, a.requires_grad_(), atol=1e-4)


def test_pivots_that_are_noise_or_nan():
    """Whether a system has a solution is said by one elimination alone; a NaN on the way is neither zero nor positive."""
    for rows in ([[5.0, 1, 3], [1, 2, 3], [3, 3, 5]], np.arange(16.0).reshape(4, 4).tolist()):
        for a in (torch.tensor(rows, dtype=torch.float32), torch.tensor([rows, rows], dtype=torch.float32)):
            x = ours(a)
            for found in (flambeau.linalg.inv_ex(x), flambeau.linalg.solve_ex(x, x)):
                assert found.info.tolist() == flambeau.linalg.lu_factor_ex(x).info.tolist()
    exact = ours(torch.tensor([[0.0, 1, 2], [3, 4, 5], [6, 7, 9]]))
    factors = matrices.lu_factor(exact._array)
    np.testing.assert_allclose(matrices.solve_factored(*factors, exact._array), np.eye(3), atol=1e-5)
    for n in (1, 3, 20):
        a = torch.eye(n)
        a[n // 2, n // 2] = torch.nan
        for f in ("cholesky_ex", "inv_ex", "lu_factor_ex"):
            check(lambda t, a, f=f: getattr(t.linalg, f)(a).info, a, gradient=False)
        check(lambda t, a: t.linalg.slogdet(a), a, gradient=False)
        check_raises(lambda t, a: t.cholesky_inverse(a), torch.zeros(n, n))
    assert flambeau.matrix_exp(flambeau.zeros(20, 20)).is_contiguous()


# -- what is refused before LAPACK could write past its arguments ------------------------------------------------------------


@BOTH
def test_pivots_that_name_no_row(dtype):
    """Pivots come from the caller: those that name no row are refused, by PyTorch too, and LAPACK never sees them."""
    a, b = positive(5, 5, dtype=dtype), numbers(5, 2, dtype=dtype)
    for place, pivot in ((0, 0), (0, 6), (4, 6), (0, -6)):
        hermitian = dtype.is_complex

        def factors(t, a, name, **options):
            packed, pivots = getattr(t.linalg, name)(a, **options)
            pivots[place] = pivot
            return packed, pivots

        check_raises(lambda t, a, b: t.linalg.ldl_solve(*factors(t, a, "ldl_factor", hermitian=hermitian), b, hermitian=hermitian), a, b)
        check_raises(lambda t, a, b: t.linalg.lu_solve(*factors(t, a, "lu_factor"), b), a, b)
        check_raises(lambda t, a: t.lu_unpack(*factors(t, a, "lu_factor")), a)
    packed, pivots = flambeau.linalg.ldl_factor(ours(a), hermitian=dtype.is_complex)
    pivots[-1] = -5  # the first half of a block of two rows, of which the second would lie behind the matrix
    with pytest.raises(RuntimeError, match="in pairs"):
        flambeau.linalg.ldl_solve(packed, pivots, ours(b), hermitian=dtype.is_complex)


# -- words and limits ----------------------------------------------------------------------------------------------------------


SAID = {
    "out of complex eigenvalues": (lambda t, a: t.linalg.eig(a, out=(t.empty(0), t.empty(0))), "Expected eigenvalues to be safely castable"),
    "out of eigvals": (lambda t, a: t.linalg.eigvals(a, out=t.empty(0, dtype=t.int)), "but got eigenvalues with dtype Int"),
    "out of eigh": (lambda t, a: t.linalg.eigh(a, out=(t.empty(0, dtype=t.int), a)), "but got int instead"),
    "out of cholesky": (lambda t, a: t.linalg.cholesky(a, out=t.empty(0, dtype=t.int)), "but got int instead"),
    "out of pinv": (lambda t, a: t.linalg.pinv(a, out=t.empty(0, dtype=t.int)), "but got result with dtype Int"),
    "out of triangular_solve": (
        lambda t, a: t.triangular_solve(a, a, out=(t.empty(0, dtype=t.int), t.empty(0, dtype=t.int))), "Expected out tensor to have dtype",
    ),
    "out of cross": (lambda t, a: t.linalg.cross(a, a + 1, out=a), "input tensor and the written-to tensor refer to a single memory location"),
    "out of multi_dot": (lambda t, a: t.linalg.multi_dot([a, a], out=t.empty(0, dtype=t.double)), "xpected out tensor to have dtype"),
    "pivots": (lambda t, a: t.lu_unpack(a, t.ones(3, dtype=t.int64)), "torch.int32 dtype"),
    "inner": (lambda t, a: t.inner(a, a[:, :2]), r"input tensors but got shapes \[3, 3\] and \[3, 2\]"),
    "rcond": (lambda t, a: t.linalg.pinv(a, rcond=t.tensor(1j)), "rcond tensor of complex type is not supported"),
    "pinv of a vector": (lambda t, a: t.linalg.pinv(a[0]), "expected a tensor with 2 or more dimensions"),
    "no minor": (lambda t, a: t.linalg.cholesky(a - 9 * t.eye(3)), "minor of order 1 is not positive-definite"),
    "tensorinv": (lambda t, a: t.linalg.tensorinv(a[:2]), "Expected self to satisfy the requirement"),
    "tensorsolve": (lambda t, a: t.linalg.tensorsolve(t.eye(24).reshape(6, 4, 24), t.ones(8, 4)), "Expected self to satisfy the requirement"),
    "vector for lstsq": (lambda t, a: t.linalg.lstsq(a, t.ones(4)), r"input.size\(-2\) should match other.size\(-1\)"),
    "complex order": (lambda t, a: t.linalg.vector_norm(a, 1 + 2j), "Expected a non-complex scalar"),
    "complex order of matrices": (lambda t, a: t.linalg.matrix_norm(a, 1 + 2j), "Expected a non-complex scalar"),
    "first of multi_dot": (lambda t, a: t.linalg.multi_dot([t.tensor(1.0), a]), "the first tensor must be 1D or 2D"),
    "tau": (lambda t, a: t.linalg.householder_product(a, t.ones(3, dtype=t.int)), "tau dtype Int does not match input dtype"),
    "batch of tau": (lambda t, a: t.ormqr(a[None], t.ones(3, 3), a[None]), r"batch dimensions of tau to be equal to input.shape\[:-2\]"),
    "ormqr of a vector": (lambda t, a: t.ormqr(a[0], t.ones(2), t.ones(2)), "input must have at least 2 dimensions"),
    "what is gone": (lambda t, a: t.solve(a, a), "This function was deprecated since version 1.9 and is now removed"),
    "baddbmm": (lambda t, a: t.baddbmm(a.double(), a[None], a[None]), "Input dtypes must be the same"),
    "einsum": (lambda t, a: t.einsum("ij->j1", a), "invalid subscript given at index 5"),
    "operands of einsum": (lambda t, a: t.einsum("ij,j", a), "fewer operands were provided than specified in the equation"),
}  # fmt: skip


@pytest.mark.parametrize("name", SAID)
def test_words_that_programs_look_for(name):
    """Errors are of PyTorch's type, and have the words by which programs know them."""
    function, words = SAID[name]
    a = positive(3, 3, dtype=torch.float32)
    with pytest.raises(RuntimeError, match=words):
        function(torch, a)
    with pytest.raises(RuntimeError, match=words):
        function(flambeau, ours(a))


@BOTH
@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss"])
@pytest.mark.parametrize("rcond", [None, 1.0, -1.0, 0.3], ids=str)
def test_which_singular_values_count_in_least_squares(dtype, driver, rcond):
    """Each of LAPACK's drivers reads rcond its own way: 1 and more is the precision to gelsd, and leaves nothing to gelss."""
    if driver == "gelsy" and rcond in (1.0, 0.3):
        return  # which columns are left out depends on those it begins with, and PyTorch does not say which
    for shape in ((4, 4), (6, 3), (3, 6), (1, 1)):
        a, b = numbers(*shape, dtype=dtype), numbers(shape[0], 2, dtype=dtype)
        check(lambda t, a, b: t.linalg.lstsq(a, b, rcond, driver=driver)[::3], a, b, gradient=False)


def test_diagonals_far_away():
    """triu and tril beyond all elements, as far as 64 bits go, keep everything or nothing."""
    for k in (2**63 - 1, -(2**63), 7, -7):
        check(lambda t, a: (t.triu(a, k), t.tril(a, k), a.clone().triu_(k), a.clone().tril_(k)), numbers(3, 5), gradient=False)


def test_norms_of_nothing():
    """A norm without identity over no elements is refused even where there is no result either."""
    for order in (inf, -1.0):
        check_raises(lambda t, x: t.linalg.vector_norm(x, order, dim=0), numbers(0, 0))
        check(lambda t, x: t.linalg.vector_norm(x, order, dim=1), numbers(0, 10), gradient=False)


def test_low_rank_of_sparse_matrices():
    """svd_lowrank and pca_lowrank only multiply with A, which may be sparse: what they find makes up A, or A less its means."""
    flambeau.manual_seed(0)
    for shape in ((30, 8), (8, 30)):
        dense = flambeau.randn(shape, dtype=flambeau.float64) * (flambeau.rand(shape) < 0.2)
        u, s, v = flambeau.svd_lowrank(dense.to_sparse(), q=8)
        np.testing.assert_allclose((u * s @ v.mT).numpy(), dense.numpy(), atol=1e-10)
        u, s, v = flambeau.pca_lowrank(dense.to_sparse(), q=8)
        np.testing.assert_allclose((u * s @ v.mT).numpy(), (dense - dense.mean(0)).numpy(), atol=1e-10)


GROUPS = {"parts of K": ((16, 32), (32, 8), [8, 8, 32]), "rows": ((16, 8), (3, 8, 4), [4, 4, 16]), "columns": ((3, 4, 8), (8, 16), [4, 8, 16]), "batch": ((3, 4, 8), (3, 8, 4), None)}  # fmt: skip


@pytest.mark.parametrize("kind", GROUPS)
def test_grouped_products(kind):
    """nn.functional.grouped_mm cuts rows, columns or the summed dimension by offsets, as PyTorch's does; its gradients are those of products."""
    first, second, ends = GROUPS[kind]
    a, b = numbers(*first, dtype=torch.float32), numbers(*second, dtype=torch.float32)
    if kind == "parts of K":
        b = b.mT.contiguous().mT  # as PyTorch wants it
    offs = lambda t: {} if ends is None else {"offs": t.tensor(ends, dtype=t.int32)}  # noqa: E731
    expected = torch.nn.functional.grouped_mm(a, b, **offs(torch))
    x, y = ours(a).requires_grad_(), ours(b)
    found = flambeau.nn.functional.grouped_mm(x, y, **offs(flambeau))
    np.testing.assert_allclose(found.detach().numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)
    found.sum().backward()
    assert x.grad.shape == x.shape and x.grad.abs().sum() > 0
    halves = flambeau.nn.functional.grouped_mm(x.bfloat16(), y.bfloat16(), out_dtype=flambeau.float32, **offs(flambeau))
    assert halves.dtype is flambeau.float32


def test_groups_refused():
    """Matrices and offsets that do not go together are refused."""
    f, ones = flambeau.nn.functional.grouped_mm, flambeau.ones
    for operands, ends in (((ones(4, 4), ones(4, 4)), None), ((ones(4, 4), ones(2, 4, 4)), [2, 5]), ((ones(4, 4), ones(2, 4, 4)), [4]), ((ones(4, 4), ones(2, 3, 4)), [2, 4]), ((ones(4, 4).double(), ones(4, 4).double()), [4])):  # fmt: skip
        with pytest.raises(RuntimeError, match="grouped_mm"):
            f(*operands, **({} if ends is None else {"offs": flambeau.tensor(ends, dtype=flambeau.int32)}))


def test_derivative_of_lobpcg():
    """A few eigenpairs have the gradients that eigh's have: of values, of vectors but for their signs, of matrices with more of them."""
    flambeau.manual_seed(0)
    a = numbers(2, 12, 12)
    weights = numbers(2, 12, 3)
    for largest in (True, False):
        x, y = ours(a).requires_grad_(), ours(a).requires_grad_()
        values, vectors = flambeau.lobpcg(x @ x.mT, 3, largest=largest, tol=1e-12, niter=500)
        all_values, all_vectors = flambeau.linalg.eigh(y @ y.mT)
        order = [-1, -2, -3] if largest else [0, 1, 2]
        for e, v in ((values, vectors), (all_values[:, order], all_vectors[:, :, order])):
            ((e * flambeau.tensor([1.0, 2.0, 3.0])).sum() + ((v * ours(weights)).sum(-2) ** 2).sum()).backward()
        np.testing.assert_allclose(values.detach().numpy(), all_values[:, order].detach().numpy(), rtol=1e-9)
        np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="B = None"):
        flambeau.lobpcg(ours(a) @ ours(a).mT, 3, B=flambeau.eye(12, dtype=flambeau.float64).requires_grad_())


@BOTH
def test_one_triangle_for_many_sides(dtype):
    """One triangular matrix and a batch of right-hand sides are one system: values, gradients and strides are PyTorch's."""
    a = numbers(4, 4, dtype=dtype).tril() + 4 * torch.eye(4, dtype=dtype)
    for shape in ((3, 2, 4, 5), (1, 4, 1), (0, 4, 2)):
        check(lambda t, a, b: t.linalg.solve_triangular(a, b, upper=False), a, numbers(*shape, dtype=dtype))
        check(lambda t, a, b: t.cholesky_solve(b, a), a, numbers(*shape, dtype=dtype))
