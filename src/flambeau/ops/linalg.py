"""Numbers and functions of matrices: determinants, rank, condition, powers, exponentials, products of many.

A matrix is the last two dimensions; whatever comes before them is a batch.
"""

from __future__ import annotations

from itertools import pairwise
from math import inf

import numpy as np

from flambeau import dtypes, errors
from flambeau.errors import LinAlgError
from flambeau.kernels import arrays
from flambeau.kernels.linear_algebra import matrices
from flambeau.ops.asking import anywhere
from flambeau.ops.declare import OPS, composite, on_arrays
from flambeau.ops.decompositions import _svd, svdvals
from flambeau.ops.matrix import adjoint, check_matrices, check_square, conj, from_lapack, identity_like, older
from flambeau.ops.norms import matrix_norm
from flambeau.ops.products import mm
from flambeau.ops.reductions import product_of_others
from flambeau.ops.solvers import _solve, cutoff, inv, inv_ex
from flambeau.ops.views import whole

# -- determinants ----------------------------------------------------------------------------------------------------------


@from_lapack("linalg.det", "", square=True)
def linalg_det(A):
    """The determinant of square matrices. (..., N, N) -> (...)."""
    return matrices.det(A)


def _det_gradient(grad, A, result):
    """d det(A) = tr(adj(A) dA). The adjugate is det(A) A^-1 where there is an inverse, and else made of the singular values."""
    if not A.numel():
        return A.new_zeros(tuple(A.shape))
    singular = result == 0
    if not anywhere(singular):
        scaled = (grad * conj(result)).unsqueeze(-1).unsqueeze(-1) * identity_like(A)
        return _solve(adjoint(A), scaled)
    u, s, vh = _svd(A, False)
    phase = conj(linalg_det(u) * linalg_det(vh))
    others = product_of_others(s, s.dim() - 1).to(A.dtype)
    return (grad * phase).unsqueeze(-1).unsqueeze(-1) * ((u * others.unsqueeze(-2)) @ vh)


linalg_det.derivative(A=_det_gradient)
older("det", linalg_det)


@from_lapack("linalg.slogdet", ", real", square=True, returns="sign logabsdet")
def linalg_slogdet(A):
    """(sign, log |det|) of square matrices: det = sign exp(logabsdet), which neither over- nor underflows. (..., N, N) -> (...), (...)."""
    sign, size = matrices.slogdet(A)
    xp = arrays.module_of(A)
    return (xp.where(xp.isnan(size), A.dtype.type(0), sign) if A.dtype.kind == "f" else sign), size  # NaN has no sign


def _slogdet_gradient(grads, A, sign):
    """d log det(A) = tr(A^-1 dA): its real part moves logabsdet, its imaginary part turns the sign."""
    of_sign, of_log = grads
    grad = 0.0 if of_log is None else of_log.to(A.dtype)
    if of_sign is not None and A.is_complex():
        grad = grad - 1j * (conj(of_sign) * sign).imag
    if not hasattr(grad, "unsqueeze"):
        return A.new_zeros(tuple(A.shape))
    return _solve(adjoint(A), grad.unsqueeze(-1).unsqueeze(-1) * identity_like(A))


linalg_slogdet.derivative(A=_slogdet_gradient)
older("slogdet", linalg_slogdet, "sign logabsdet", out=True)


@composite
def logdet(input):
    """The logarithm of the determinant: -inf where that is 0, NaN where it is negative. (..., N, N) -> (...)."""
    sign, size = linalg_slogdet(input)
    return size + sign.log()  # log(0) is -inf, log(-1) is NaN


# -- rank and condition ----------------------------------------------------------------------------------------------------


@from_lapack("linalg.matrix_rank", "int64", differentiable=False, autocast="cpu float32")
def matrix_rank(A, tol=None, hermitian=False, *, atol=None, rtol=None):
    """The number of singular values above max(atol, rtol * the largest). (..., M, N) -> (...)."""
    if hermitian:
        check_square("linalg.matrix_rank", A)
    if not A.size:
        return arrays.module_of(A).zeros(A.shape[:-2], np.int64)
    values = abs(matrices.eigh(A, "L", False)) if hermitian else matrices.svd(A, False, False)
    if tol is not None:
        atol, rtol = tol, 0.0
    return (values > cutoff("linalg.matrix_rank", A, values, atol, rtol)).sum(-1)


@composite(name="linalg.cond", method=False, out=True, autocast="cpu float32")
def cond(A, p=None):
    """How much A can magnify a relative error: |A| |A^-1| in the matrix norm p, by default 2. (..., M, N) -> (...). Singular: inf."""
    check_matrices("linalg.cond", A)
    if p is None or p in (2, -2):
        values = svdvals(A)
        if not values.shape[-1]:
            return values.sum(-1)
        largest, smallest = values.select(-1, 0), values.select(-1, -1)
        return smallest / largest if p == -2 else largest / smallest
    if p not in ("fro", "nuc", 1, -1, inf, -inf):
        raise RuntimeError(f"linalg.cond got an invalid norm type: {p}")
    check_square(f"linalg.cond({p!r})", A)
    if p == "nuc":
        values = svdvals(A)
        return values.sum(-1) * (1 / values).sum(-1)
    try:
        return matrix_norm(A, p) * matrix_norm(inv(A), p)
    except LinAlgError:  # some matrix has no inverse: invert the others
        inverse, info = inv_ex(A)
        return (matrix_norm(A, p) * matrix_norm(inverse, p)).masked_fill(info != 0, inf)


# -- powers, exponentials --------------------------------------------------------------------------------------------------


@composite(name="linalg.matrix_power", method=False, out="cast rows")
def linalg_matrix_power(A, n):
    """A multiplied n times by itself, by repeated squaring; of the inverse if n is negative. (..., N, N) -> (..., N, N)."""
    check_square("linalg.matrix_power", A)
    n = whole(n)
    if n == 0:
        return A.contiguous().clone().copy_(identity_like(A))  # a result of A as any other power: its gradient is zero
    given = A
    if n < 0:
        A, n = inv(A), -n
    result = None
    while True:
        if n & 1:
            result = A if result is None else result @ A
        n >>= 1
        if not n:
            return result.clone() if result is given else result
        A = A @ A


@composite(out="cast rows")
def matrix_power(input, n):
    """`input` multiplied n times by itself. (..., N, N) -> (..., N, N)."""
    return linalg_matrix_power(input, n)


# The numerator of the Padé approximation of exp of order 13, and up to which norm it is exact to double precision (Higham, 2005).
PADE_13 = (
    64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000, 10559470521600, 670442572800, 33522128640,
    1323241920, 40840800, 960960, 16380, 182, 1,
)  # fmt: skip
PADE_13_NORM = 5.371920351148152


@on_arrays(name="linalg.matrix_exp", method=False)
def linalg_matrix_exp(A):
    """exp(A) = I + A + A^2 / 2! + ..., by scaling and squaring, in double precision. (..., N, N) -> (..., N, N)."""
    check_square("linalg.matrix_exp", A)
    if A.dtype.kind in "biu":
        raise RuntimeError(f"linalg.matrix_exp: Expected a floating point or complex tensor, found {A.dtype}. Try x.float()")
    xp = arrays.module_of(A)
    wide = np.dtype(np.complex128 if A.dtype.kind == "c" else np.float64)
    if not A.size:
        return xp.empty(A.shape, A.dtype)
    with np.errstate(all="ignore"):
        return arrays.cast(_exp(xp, arrays.cast(A, wide)), A.dtype)


def _exp(xp, a):
    """exp(a) = exp(a / 2^s)^(2^s), with s so large that the approximation holds."""
    size = xp.abs(a).sum(-2).max(-1)
    steps = xp.where(xp.isfinite(size) & (size > PADE_13_NORM), xp.ceil(xp.log2(size / PADE_13_NORM)), 0).astype(np.int64)
    result = _pade(xp, a / (2.0**steps)[..., None, None])
    for i in range(int(steps.max())):
        result = xp.where((steps > i)[..., None, None], result @ result, result)
    return result


def _pade(xp, a):
    """(V + U) / (V - U), U with the odd and V with the even powers of a."""
    b = PADE_13
    one = xp.eye(a.shape[-1], dtype=a.dtype)
    a2 = a @ a
    a4 = a2 @ a2
    a6 = a4 @ a2
    u = a @ (a6 @ (b[13] * a6 + b[11] * a4 + b[9] * a2) + b[7] * a6 + b[5] * a4 + b[3] * a2 + b[1] * one)
    v = a6 @ (b[12] * a6 + b[10] * a4 + b[8] * a2) + b[6] * a6 + b[4] * a4 + b[2] * a2 + b[0] * one
    return arrays.contiguous(matrices.solve(v - u, v + u))


def _matrix_exp_gradient(grad, A):
    """The derivative of exp at A in direction G is the upper right block of exp([[A, G], [0, A]]); its adjoint has A^H for A."""
    n, turned, cat = A.shape[-1], adjoint(A), OPS["cat"]
    blocks = cat([cat([turned, grad], -1), cat([A.new_zeros(tuple(A.shape)), turned], -1)], -2)
    return linalg_matrix_exp(blocks).narrow(-2, 0, n).narrow(-1, n, n)


@linalg_matrix_exp.meta
def _(A):
    check_square("linalg.matrix_exp", A)
    return A.shape, A.dtype


linalg_matrix_exp.derivative(A=_matrix_exp_gradient)
older("matrix_exp", linalg_matrix_exp)


# -- products of many ------------------------------------------------------------------------------------------------------


@composite(name="linalg.multi_dot", method=False, out="same", autocast="cuda half")
def multi_dot(tensors):
    """The product of two or more matrices, in the order that takes the fewest multiplications. The first and last may be vectors."""
    tensors = list(tensors)
    if len(tensors) < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors, found {len(tensors)}")
    _check_chain(tensors)
    row, column = tensors[0].dim() == 1, tensors[-1].dim() == 1
    if row:
        tensors[0] = tensors[0].unsqueeze(0)
    if column:
        tensors[-1] = tensors[-1].unsqueeze(1)
    for i, (a, b) in enumerate(pairwise(tensors)):
        if a.shape[1] != b.shape[0]:
            raise RuntimeError(f"multi_dot(): tensors {i} and {i + 1} with shapes {list(a.shape)} and {list(b.shape)} cannot be multiplied")
    found = _multiplied(tensors)
    found = found.squeeze(0) if row else found
    return found.squeeze(-1) if column else found


def _check_chain(tensors) -> None:
    first, last = tensors[0], len(tensors) - 1
    for i, t in enumerate(tensors):
        if t.dim() != 2 and not (i in (0, last) and t.dim() == 1):
            which = {0: "the first tensor must be 1D or", last: "the last tensor must be 1D or"}.get(i, f"tensor {i} must be")
            raise RuntimeError(f"multi_dot(): {which} 2D but got {t.dim()}D")
        for what, mine, theirs in (("have be the same dtype", first.dtype, t.dtype), ("be on the same device", first.device, t.device)):
            if mine != theirs:
                raise RuntimeError(f"multi_dot(): all tensors must {what} but tensor 0 has {mine} and tensor {i} has {theirs}")


def _multiplied(tensors):
    """The product by the best split: cost[i][j] is the least number of multiplications for tensors i to j, split[i][j] where to cut."""
    n = len(tensors)
    sizes = [t.shape[0] for t in tensors] + [tensors[-1].shape[1]]
    cost = [[0] * n for _ in range(n)]
    split = [[0] * n for _ in range(n)]
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            cost[i][j], split[i][j] = min((cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j))

    def product(i: int, j: int):
        if i == j:
            return tensors[i]
        return mm(product(i, split[i][j]), product(split[i][j] + 1, j))

    return product(0, n - 1)


@composite(method=False, autocast="cuda half")
def chain_matmul(*matrices, out=None):
    """The product of matrices, in the best order; the older form of linalg.multi_dot."""
    errors.warn("torch.chain_matmul is deprecated in favor of torch.linalg.multi_dot, which takes a list")
    if len(matrices) == 1 and isinstance(matrices[0], (list, tuple)):
        matrices = matrices[0]
    if not matrices:
        raise RuntimeError("chain_matmul(): Expected one or more matrices")
    for i, m in enumerate(matrices):
        if m.dim() != 2:
            raise RuntimeError(f"Tensor dimension is {m.dim()}, expected 2 instead: chain_matmul takes matrices (number {i})")
    if len(matrices) == 1:
        return matrices[0] if out is None else out.copy_(matrices[0])
    return multi_dot(matrices, out=out)


# -- small ones ------------------------------------------------------------------------------------------------------------


@composite(grad_name="TraceBackward0", autocast="cpu float32, cuda given")
def trace(input):
    """The sum of the diagonal of a matrix. (M, N) -> ()."""
    if input.dim() != 2:
        raise RuntimeError(f"trace: expected a matrix, found {input.dim()} dimensions")
    if input.dtype is dtypes.bool:
        raise NotImplementedError('"trace" is not implemented for bool. Try x.long()')
    return input.diagonal().sum()


@composite(name="linalg.diagonal", method=False)
def linalg_diagonal(A, *, offset=0, dim1=-2, dim2=-1):
    """The diagonals of matrices, as a view. (..., N, N) -> (..., N)."""
    return A.diagonal(offset, dim1, dim2)


@composite(name="linalg.vander", method=False)
def linalg_vander(x, *, N=None):
    """The powers 0 to N - 1 of every element, N being the length of x unless given. (..., K) -> (..., K, N)."""
    x = x if x.dim() else x.unsqueeze(0)
    n = x.shape[-1] if N is None else N
    if x.dtype is dtypes.bool:
        raise RuntimeError("linalg.vander: powers of Bool are not taken. Try x.long()")
    if n <= 1:
        raise RuntimeError(f"N must be greater than 1, found {n}.")
    repeated = x.unsqueeze(-1).expand((*x.shape, n - 1))
    dtype = repeated.dtype if repeated.dtype.category >= dtypes.FLOAT else dtypes.int64
    powers = repeated.cumprod(-1, dtype=dtype)
    return OPS["cat"]([powers.new_ones((*x.shape, 1)), powers], -1)
