"""Systems and factorisations of arrays of matrices, on any device.

Matrices are the last two dimensions, anything before them is a batch; nothing here changes its arguments. There are three ways:
LAPACK, matrix by matrix (see lapack.py); NumPy's linalg, or CuPy's on CUDA, for the whole batch in one call, which is faster for small
matrices; and steps written here: for LU, Cholesky and triangular systems of real numbers in C (elimination.py), else a column or a row
at a time for the whole batch, for QR of small ones in C (householder.py).

Failures are numpy.linalg.LinAlgError, or an array `info` with one number for each matrix: 0, or where the failure was.
"""

from __future__ import annotations

import math

import numpy as np

from flambeau.kernels import arrays
from flambeau.kernels.arrays import Array
from flambeau.kernels.linear_algebra.lapack import batched, columns, empty_columns, fortran, library, routine
from flambeau.kernels.templates import elimination, householder

INT32 = np.dtype(np.int32)
SMALL = 16  # rows and columns; below, calling LAPACK for each matrix costs more than the work (12 us a call)


def _by_lapack(a: Array, small: int = SMALL) -> bool:
    return type(a) is np.ndarray and max(a.shape[-2:]) > small and library() is not None and a.size > 0


def _compiled(a: Array) -> bool:
    """Whether LAPACK, or loops of ours that need no library, had better take these matrices than NumPy."""
    return _by_lapack(a) or (max(a.shape[-2:]) > SMALL and elimination.applies(a))


def from_module(a: Array, name: str, *args, **options):
    """Call a function of NumPy's or CuPy's linalg so that it raises LinAlgError when it fails; CuPy has to be asked to."""
    if type(a) is np.ndarray:
        if a.ndim > 3 and list(a.strides[:-2]) != sorted(a.strides[:-2], reverse=True):
            a = arrays.contiguous(a)  # NumPy's results would lie in the order of this batch, PyTorch's are in row-major order
        with np.errstate(all="ignore"):
            return getattr(np.linalg, name)(a, *args, **options)
    import cupyx  # type: ignore[import-not-found]

    with cupyx.errstate(linalg="raise"):
        return getattr(arrays.module_of(a).linalg, name)(a, *args, **options)


def _succeed(info: Array) -> None:
    if info.any():
        raise np.linalg.LinAlgError(f"LAPACK reports {info.max()}")


# -- systems ---------------------------------------------------------------------------------------------------------------


def inverse(a: Array) -> Array:
    """The inverse of square matrices. (..., N, N) -> (..., N, N)."""
    if not _compiled(a):
        try:
            return from_module(a, "inv")
        except np.linalg.LinAlgError:
            return solve_factored(*lu_factor(a), identities(a))
    if elimination.applies(a):  # P L U = a, and so the inverse of L, through U, and its columns exchanged
        lu = arrays.contiguous_copy(a)
        pivots, info = elimination.lu(lu)
        _succeed(info)
        x = elimination.invert(lu, False, True)
        elimination.solve(lu, x, True, False)
        found = columns(x)
        elimination.exchange_back(found.swapaxes(-1, -2), pivots)
        return found
    found, pivots, info = lu_factor(a)
    _succeed(info)
    getri, n = routine("getri", a.dtype), a.shape[-1]
    _succeed(batched(lambda lu, pivots, *work: getri(n, lu, n, pivots, *work), a.shape[:-2], found, pivots, work=a.dtype))
    return found


def solve(a: Array, b: Array) -> Array:
    """X with a X = b. (..., N, N), (..., N, K) -> (..., N, K); the batches broadcast."""
    batch, (n, k) = a.shape[:-2], b.shape[-2:]
    if batch != b.shape[:-2]:  # a b with fewer dimensions would be taken for vectors
        batch, xp = np.broadcast_shapes(batch, b.shape[:-2]), arrays.module_of(a)
        a, b = xp.broadcast_to(a, (*batch, n, n)), xp.broadcast_to(b, (*batch, n, k))
    if not (_compiled(a) if b.size else _by_lapack(a)):
        try:
            return from_module(a, "solve", b)
        except np.linalg.LinAlgError:
            return solve_factored(*lu_factor(a), b)
    if elimination.applies(a) and b.size:
        lu, x = arrays.contiguous_copy(a), arrays.contiguous_copy(b)
        pivots, info = elimination.lu(lu)
        _succeed(info)
        elimination.solve_factored(lu, pivots, x)
        return columns(x)
    gesv = routine("gesv", a.dtype)
    x, pivots = columns(b), np.empty(n, INT32)
    _succeed(batched(lambda a, x: gesv(n, k, a, n, pivots, x, n), batch, columns(a), x))
    return x


def solve_factored(lu: Array, pivots: Array, info: Array, b: Array) -> Array:
    """X with a X = b, given what `lu_factor` made of a; LinAlgError where a pivot is zero. (..., N, N), (..., N, K) -> (..., N, K).

    Another elimination of the same matrix may find a zero where this one has a rounding error: whether there is a solution is said by `info`.
    """
    _succeed(info)
    xp, n = arrays.module_of(lu), lu.shape[-1]
    steps = pivots.reshape(-1, n) - 1
    each, order = xp.arange(len(steps)), xp.tile(xp.arange(n), (len(steps), 1))
    for i in range(n):
        order[each, i], order[each, steps[:, i]] = order[each, steps[:, i]], order[each, i]
    x = xp.take_along_axis(b, order.reshape(*pivots.shape, 1), -2)
    return solve_triangular(lu, solve_triangular(lu, x, False, True), True, False)


def identities(a: Array) -> Array:
    """An identity matrix for every matrix. (..., N, N) -> (..., N, N)."""
    xp = arrays.module_of(a)
    return xp.broadcast_to(xp.eye(a.shape[-1], dtype=a.dtype), a.shape)


def least_squares(a: Array, b: Array, rcond: float) -> tuple[Array, Array] | None:
    """(X, rank) with |a X - b| least, of all such X the shortest, by QR with exchanged columns; None where LAPACK is not to be called.

    (..., M, N), (..., M, K) -> (..., N, K), (...). Columns count as long as the condition of those taken stays below 1 / rcond.
    """
    if not _by_lapack(a, 0) or not b.size or not np.isfinite(a).all():
        return None
    *batch, m, n = a.shape
    k, longer, real = b.shape[-1], max(m, n), a.real.dtype
    x, order, ranks = empty_columns(batch, longer, k, a.dtype), np.empty(n, INT32), np.empty((*batch, 1), INT32)
    x[..., :m, :] = b
    extra = [np.empty(2 * n, real)] if a.dtype.kind == "c" else []
    gelsy, cut = routine("gelsy", a.dtype), np.array(rcond, real)

    def call(matrix, solution, rank, work, size) -> int:
        order[:] = 0
        return gelsy(m, n, k, matrix, m, solution, longer, order, cut, rank, work, size, *extra)

    _succeed(batched(call, batch, columns(a), x, ranks, work=a.dtype))
    return x[..., :n, :], ranks[..., 0]


def solve_triangular(a: Array, b: Array, upper: bool, unit: bool) -> Array:
    """X with a X = b, reading one triangle of a (with `unit`, taking its diagonal for ones). (..., N, N), (..., N, K) -> (..., N, K).

    A zero on the diagonal divides by zero: the result then has infinities and NaNs, but there is no error.
    """
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    n, k = b.shape[-2:]
    if elimination.applies(a) and b.size:
        x = arrays.contiguous_copy(np.broadcast_to(b, (*batch, n, k)))
        elimination.solve(_triangles(a, batch), x, upper, unit)
        return columns(x)
    if math.prod(a.shape[:-2]) == 1 < math.prod(batch):  # one matrix for all: their right-hand sides, side by side, are one system
        xp = arrays.module_of(a)
        sides = xp.moveaxis(xp.broadcast_to(b, (*batch, n, k)), -2, 0)
        x = solve_triangular(a.reshape(n, n), sides.reshape(n, -1), upper, unit)
        return xp.moveaxis(x.reshape(sides.shape), 0, -2)
    if not _by_lapack(a, 0) or _many_small(batch, n):
        return _solve_by_rows(a, b, batch, upper, unit)
    x = columns(np.broadcast_to(b, (*batch, n, k)))
    if a.strides[-2] != a.itemsize or a.strides[-1] < n * a.itemsize:
        a = arrays.contiguous(a)
    by_rows = a.strides[-1] == a.itemsize and (n == 1 or a.strides[-2] >= n * a.itemsize)
    lead = max(a.strides[-2 if by_rows else -1] // a.itemsize, n)
    a = np.broadcast_to(a, (*batch, n, n))
    # BLAS reads memory column by column: a matrix stored by rows is its own transpose there, and its upper triangle the lower one.
    triangle = b"U" if upper != by_rows else b"L"
    trsm, one = fortran("trsm", a.dtype), np.ones((), a.dtype)
    for at in np.ndindex(*batch):
        trsm(b"L", triangle, b"T" if by_rows else b"N", b"U" if unit else b"N", n, k, one, a[at], lead, x[at], n)
    return x


def solve_cholesky(factor: Array, b: Array | None, upper: bool) -> Array:
    """X with L L^H X = b, given L, or U = L^H if `upper`; None stands for the identity. (..., N, N), (..., N, K) -> (..., N, K)."""
    xp = arrays.module_of(factor)
    turned = xp.swapaxes(factor, -1, -2)
    turned = turned.conj() if factor.dtype.kind == "c" else turned
    lower, higher = (turned, factor) if upper else (factor, turned)
    if not elimination.applies(factor) or (b is not None and not b.size):
        b = identities(factor) if b is None else b
        return solve_triangular(higher, solve_triangular(lower, b, False, False), True, False)
    if b is None:
        batch = factor.shape[:-2]
        x = elimination.invert(_triangles(lower, batch), False, False)
    else:
        batch = np.broadcast_shapes(factor.shape[:-2], b.shape[:-2])
        x = arrays.contiguous_copy(np.broadcast_to(b, (*batch, *b.shape[-2:])))
        elimination.solve(_triangles(lower, batch), x, False, False)
    elimination.solve(_triangles(higher, batch), x, True, False)
    return columns(x)


def _triangles(a: np.ndarray, batch) -> np.ndarray:
    """Triangular matrices for a whole batch, as they lie if rows or columns of each are dense."""
    n = a.shape[-1]
    if a.itemsize not in a.strides[-2:] or max(a.strides[-2:]) < n * a.itemsize or min(a.strides) < 0:
        a = arrays.contiguous_copy(a)
    return np.broadcast_to(a, (*batch, n, n))


def _solve_by_rows(a: Array, b: Array, batch, upper: bool, unit: bool) -> Array:
    """Substitution for all systems of the batch together, one row at a time."""
    xp = arrays.module_of(a)
    n = b.shape[-2]
    x = xp.array(xp.broadcast_to(b, (*batch, *b.shape[-2:])))
    order = range(n - 1, -1, -1) if upper else range(n)
    with np.errstate(all="ignore"):
        for i in order:
            known = slice(i + 1, n) if upper else slice(0, i)
            row = x[..., i, :] - xp.matmul(a[..., i, None, known], x[..., known, :])[..., 0, :]
            x[..., i, :] = row if unit else row / a[..., i, i, None]
    return x


def _many_small(batch, n: int) -> bool:
    """Whether to treat a batch as a whole: 1000 matrices of 4 x 4 are ten times as fast that way."""
    return n <= SMALL and math.prod(batch) > 8 * n


# -- LU and what is made of it ---------------------------------------------------------------------------------------------


def lu_factor(a: Array, pivot: bool = True) -> tuple[Array, Array, Array]:
    """(LU, pivots, info) with P L U = a. (..., M, N) -> (..., M, N), (..., min(M, N)), (...).

    L has ones on its diagonal and lies below it in LU, U on and above it. Row i was exchanged with row pivots[i] - 1, for i = 0, 1, ...
    info counts from 1 the first zero on the diagonal of U, 0 if there is none.
    """
    *batch, m, n = a.shape
    if pivot and elimination.applies(a):
        lu = arrays.contiguous_copy(a)
        found = elimination.lu(lu)
        return columns(lu), *found
    if not pivot or not _by_lapack(a, 0) or _many_small(batch, min(m, n)):
        return _lu_by_columns(a, pivot)
    lu, pivots, getrf = columns(a), np.empty((*batch, min(m, n)), INT32), routine("getrf", a.dtype)
    return lu, pivots, batched(lambda lu, pivots: getrf(m, n, lu, m, pivots), batch, lu, pivots)


def _lu_by_columns(a: Array, pivot: bool) -> tuple[Array, Array, Array]:
    """Gaussian elimination of all matrices of the batch together, one column at a time."""
    xp = arrays.module_of(a)
    *batch, m, n = a.shape
    k, count = min(m, n), math.prod(batch)
    lu = xp.array(a).reshape(count, m, n)
    each = xp.arange(count)
    pivots = xp.zeros((count, k), INT32)
    with np.errstate(all="ignore"):
        for i in range(k):
            best = xp.argmax(_size(lu[:, i:, i]), axis=1) + i if pivot else xp.full(count, i)
            pivots[:, i] = best + 1
            lu[each, i], lu[each, best] = lu[each, best], lu[each, i]  # the right side is copied before either is written
            head = lu[:, i, i][:, None]
            lu[:, i + 1 :, i] /= xp.where(head == 0, head.dtype.type(1), head) if pivot else head
            lu[:, i + 1 :, i + 1 :] -= lu[:, i + 1 :, i, None] * lu[:, i, None, i + 1 :]
    info = first(xp.diagonal(lu, axis1=1, axis2=2) == 0)
    return lu.reshape(a.shape), pivots.reshape(*batch, k), info.reshape(batch)


def first(true: Array) -> Array:
    """The place of the first true element, counted from 1; 0 if none is. (..., N) -> (...), int32."""
    xp = arrays.module_of(true)
    if not true.shape[-1]:
        return xp.zeros(true.shape[:-1], INT32)
    return xp.where(true.any(-1), true.argmax(-1) + 1, 0).astype(INT32)


def _size(x: Array) -> Array:
    """How large LAPACK takes a pivot to be: |x|, but |real| + |imag| for complex numbers."""
    return abs(x.real) + abs(x.imag) if x.dtype.kind == "c" else abs(x)


def slogdet(a: Array) -> tuple[Array, Array]:
    """(sign, log |det|) of square matrices."""
    xp = arrays.module_of(a)
    if not _compiled(a):
        return tuple(xp.asarray(x) for x in from_module(a, "slogdet"))
    diagonal, exchanges = _pivots_of(a)
    with np.errstate(all="ignore"):
        size = abs(diagonal)
        sign = np.prod(np.where(size == 0, diagonal, diagonal / size), axis=-1) * exchanges
        return np.asarray(sign, a.dtype), np.asarray(np.log(size).sum(-1), size.dtype)


def det(a: Array) -> Array:
    """The determinant of square matrices."""
    if not _compiled(a):
        return from_module(a, "det")
    diagonal, exchanges = _pivots_of(a)
    with np.errstate(all="ignore"):
        return np.asarray(np.prod(diagonal, axis=-1) * exchanges, a.dtype)


def _pivots_of(a: Array) -> tuple[Array, Array]:
    """(the diagonal of U, 1 or -1 as the number of exchanged rows is even or odd)."""
    if elimination.applies(a):
        lu = arrays.contiguous_copy(a)
        pivots = elimination.lu(lu)[0]
    else:
        lu, pivots, _ = lu_factor(a)
    odd = (pivots != np.arange(1, a.shape[-1] + 1)).sum(-1) % 2
    return np.diagonal(lu, axis1=-2, axis2=-1), 1 - 2 * odd


# -- Cholesky, LDL^T -------------------------------------------------------------------------------------------------------


def cholesky(a: Array) -> tuple[Array, Array]:
    """(L, info) with L L^H = a, reading the lower triangle. info is 0, or the size of the first leading block that is not positive."""
    xp = arrays.module_of(a)
    if not _compiled(a):
        try:
            factor = from_module(a, "cholesky")
            return factor, first(xp.isnan(xp.diagonal(factor, axis1=-2, axis2=-1)))  # NumPy lets NaN pass
        except np.linalg.LinAlgError:
            if not _by_lapack(a, 0):
                return _cholesky_by_blocks(a)
    if elimination.applies(a):
        turned = arrays.contiguous_copy(a.swapaxes(-1, -2))
        info = elimination.cholesky(turned)
        return turned.swapaxes(-1, -2), info
    factor, potrf, n = columns(a), routine("potrf", a.dtype), a.shape[-1]
    info = batched(lambda factor: potrf(b"L", n, factor, n), a.shape[:-2], factor)
    return np.tril(factor), info


def _cholesky_by_blocks(a: Array) -> tuple[Array, Array]:
    """`cholesky` where some matrix has no factor and there is no LAPACK to say where it fails: by trying leading blocks."""
    xp = arrays.module_of(a)
    factor, info = xp.zeros_like(a), xp.zeros(a.shape[:-2], INT32)
    for at in np.ndindex(*a.shape[:-2]):
        good, bad = 0, a.shape[-1] + 1  # a block inside a positive definite one is positive definite: halve the interval
        while bad - good > 1:
            size = (good + bad) // 2
            try:
                factor[at][:size, :size] = from_module(a[at][:size, :size], "cholesky")
                good = size
            except np.linalg.LinAlgError:
                bad = size
        info[at] = 0 if bad > a.shape[-1] else bad
    return factor, info


def ldl_factor(a: Array, hermitian: bool) -> tuple[Array, Array, Array]:
    """(LD, pivots, info): the Bunch-Kaufman factors of symmetric (or Hermitian) matrices, read from and packed into the lower triangle."""
    _need_lapack("ldl_factor", a)
    *batch, n, _ = a.shape
    ld, pivots, info = columns(a), np.zeros((*batch, n), INT32), np.zeros(batch, INT32)
    if ld.size:
        trf = routine("hetrf" if hermitian and a.dtype.kind == "c" else "sytrf", a.dtype)
        info = batched(lambda ld, pivots, *work: trf(b"L", n, ld, n, pivots, *work), batch, ld, pivots, work=a.dtype)
    return np.tril(ld), pivots, info


def ldl_solve(ld: Array, pivots: Array, b: Array, hermitian: bool) -> Array:
    """X with a X = b, given the factors of a. (..., N, N), (..., N), (..., N, K) -> (..., N, K)."""
    _need_lapack("ldl_solve", ld)
    batch = np.broadcast_shapes(ld.shape[:-2], b.shape[:-2])
    n, k = b.shape[-2:]
    x = columns(np.broadcast_to(b, (*batch, n, k)))
    if x.size:
        trs = routine("hetrs" if hermitian and ld.dtype.kind == "c" else "sytrs", ld.dtype)
        ld = columns(np.broadcast_to(ld, (*batch, n, n)))
        pivots = np.ascontiguousarray(np.broadcast_to(pivots, (*batch, n)), INT32)
        batched(lambda ld, pivots, x: trs(b"L", n, k, ld, n, pivots, x, n), batch, ld, pivots, x)
    return x


def _need_lapack(name: str, a: Array) -> None:
    if type(a) is not np.ndarray:
        raise NotImplementedError(f"{name} is not available on CUDA: move the tensor to the CPU with .cpu() first")
    if library() is None:
        raise NotImplementedError(f"{name} needs LAPACK, which is not installed: pip install scipy-openblas32")


# -- QR --------------------------------------------------------------------------------------------------------------------


def qr_packed(a: Array) -> tuple[Array, Array]:
    """(packed, tau): R on and above the diagonal, below it the vectors of the reflections whose product is Q."""
    small = householder.applies(a)
    if not small and not _by_lapack(a):
        packed, tau = from_module(a, "qr", mode="raw")
        return arrays.module_of(a).swapaxes(packed, -1, -2), tau
    *batch, m, n = a.shape
    packed, tau = columns(a), np.empty((*batch, min(m, n)), a.dtype)
    if small:
        householder.factor(packed, tau)
    else:
        geqrf = routine("geqrf", a.dtype)
        batched(lambda packed, tau, *work: geqrf(m, n, packed, m, tau, *work), batch, packed, tau, work=a.dtype)
    return packed, tau


def qr(a: Array, mode: str) -> tuple[Array | None, Array]:
    """(Q, R): (..., M, K), (..., K, N) if mode is 'reduced', (..., M, M), (..., M, N) if 'complete'; (None, R) if 'r'."""
    small = householder.applies(a)
    if not small and not _by_lapack(a):
        found = from_module(a, "qr", mode=mode)
        return (None, found) if mode == "r" else tuple(found)
    *batch, m, n = a.shape
    k = min(m, n)
    packed, tau = qr_packed(a)
    rows = packed if mode == "complete" else packed[..., :k, :]
    r = np.tril(rows.swapaxes(-1, -2)).swapaxes(-1, -2)  # the upper triangle, column after column like the rest
    if mode == "r":
        return None, r
    width = m if mode == "complete" else k
    q = empty_columns(batch, m, width, a.dtype)
    q[..., :k] = packed[..., :k]
    if small:
        householder.product(q, tau)
    else:
        orgqr = routine("orgqr", a.dtype)
        batched(lambda q, tau, *work: orgqr(m, width, k, q, m, tau, *work), batch, q, tau, work=a.dtype)
    return q, r


# -- singular values and eigenvalues ---------------------------------------------------------------------------------------


def svd(a: Array, full: bool, vectors: bool = True):
    """(U, S, V^H), reduced unless `full`; S alone without `vectors`."""
    if not _by_lapack(a):
        return from_module(a, "svd", full_matrices=full) if vectors else from_module(a, "svd", compute_uv=False)
    if not np.isfinite(a).all():
        raise np.linalg.LinAlgError("NaN and infinity have no singular values")
    *batch, m, n = a.shape
    k, real = min(m, n), a.real.dtype
    columns_u, rows_v = (m, n) if full else (k, k)
    job = b"N" if not vectors else b"A" if full else b"S"
    sides = [empty_columns(batch, m, columns_u, a.dtype), empty_columns(batch, rows_v, n, a.dtype)] if vectors else []
    s, integers = np.empty((*batch, k), real), np.empty(8 * k, INT32)
    extra = [np.empty(max(5 * k * k + 7 * k, 2 * max(m, n) * k + 2 * k * k + k), real)] if a.dtype.kind == "c" else []
    gesdd = routine("gesdd", a.dtype)

    def call(matrix, values, *others) -> int:
        *found, work, size = others
        u, vh = found or (values, values)
        return gesdd(job, m, n, matrix, m, values, u, m, vh, rows_v, work, size, *extra, integers)

    _succeed(batched(call, batch, columns(a), s, *sides, work=a.dtype))
    return (sides[0], s, sides[1]) if vectors else s


def eigh(a: Array, uplo: str, vectors: bool = True):
    """(eigenvalues, eigenvectors) of Hermitian matrices, of which one triangle ('L' or 'U') is read; the values alone without `vectors`."""
    if not _by_lapack(a):
        return from_module(a, "eigh" if vectors else "eigvalsh", uplo)
    *batch, n, _ = a.shape
    v, w = columns(a), np.empty((*batch, n), a.real.dtype)
    job, triangle = b"V" if vectors else b"N", uplo.encode()
    syevd = routine("syevd", a.dtype)
    integers = np.empty(3 + 5 * n, INT32)
    extra = [np.empty(1 + 5 * n + 2 * n * n, w.dtype), 1 + 5 * n + 2 * n * n] if a.dtype.kind == "c" else []

    def call(matrix, values, work, size) -> int:
        return syevd(job, triangle, n, matrix, n, values, work, size, *extra, integers, integers.size)

    _succeed(batched(call, batch, v, w, work=a.dtype))
    return (w, v) if vectors else w


def eig(a: Array, vectors: bool = True):
    """(eigenvalues, eigenvectors) of square matrices, both complex; the values alone without `vectors`."""
    xp = arrays.module_of(a)
    dtype = np.result_type(a.dtype, np.complex64)
    if not _by_lapack(a):
        found = from_module(a, "eig" if vectors else "eigvals")
        return tuple(xp.asarray(x, dtype) for x in found) if vectors else xp.asarray(found, dtype)
    *batch, n, _ = a.shape
    v, is_complex, geev = empty_columns(batch, n, n, a.dtype), a.dtype.kind == "c", routine("geev", a.dtype)
    parts = [np.empty((*batch, n), a.dtype) for _ in range(1 if is_complex else 2)]
    extra = [np.empty(2 * n, a.real.dtype)] if is_complex else []

    def call(matrix, right, *others) -> int:
        *values, work, size = others
        return geev(b"N", b"V" if vectors else b"N", n, matrix, n, *values, right, 1, right, n, work, size, *extra)

    _succeed(batched(call, batch, columns(a), v, *parts, work=a.dtype))
    values = parts[0] if is_complex else (parts[0] + 1j * parts[1]).astype(dtype)
    if not vectors:
        return values
    return values, v if is_complex else _paired(v, parts[1], dtype)


def _paired(v: Array, imaginary: Array, dtype: np.dtype) -> Array:
    """LAPACK's real columns as complex vectors: a pair of eigenvalues x + iy, x - iy has the columns Re, Im of the first vector."""
    found = v.astype(dtype)
    for at in np.ndindex(*v.shape[:-2]):
        for j in np.flatnonzero(imaginary[at] > 0):
            found[at][:, j] = v[at][:, j] + 1j * v[at][:, j + 1]
            found[at][:, j + 1] = found[at][:, j].conj()
    return found
