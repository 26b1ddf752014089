"""What matrix operations have in common: the checks they begin with, the errors they end with, and small pieces of their derivatives.

A matrix is the last two dimensions of a tensor; whatever comes before them is a batch. Checks take arrays (or anything with shape and
dtype) and the name to complain under, pieces take tensors.
"""

from __future__ import annotations

import functools

import numpy as np

from flambeau import dtypes
from flambeau.errors import LinAlgError
from flambeau.kernels import layout
from flambeau.ops.declare import on_arrays
from flambeau.ops.reductions import conj

# Private operations of LAPACK's, which has no half precision. Called linalg_svd, say, as PyTorch names their results and nodes.
from_lapack = functools.partial(on_arrays, public=False, method=False, autocast="float32")

LAPACK_DTYPES = tuple(d.numpy for d in (dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128))


# -- checks ----------------------------------------------------------------------------------------------------------------


def check_float(name: str, *matrices) -> None:
    """RuntimeError unless all are float32, float64 or complex: what LAPACK computes with."""
    for a in matrices:
        if a.dtype in LAPACK_DTYPES:
            continue
        found = dtypes.OF_NUMPY[a.dtype].name
        if a.dtype.kind in "biu":
            raise RuntimeError(f"{name}: Expected a floating point or complex tensor as input. Got {found}. Try x.float()")
        raise NotImplementedError(f"{name}: Low precision dtypes not supported (not implemented for {found}). Try x.float()")


def check_lapack(name: str, a) -> None:
    """As check_float, with PyTorch's NotImplementedError for integers too: some functions leave the refusal to LAPACK's dispatch."""
    if a.dtype.kind in "biu":
        raise NotImplementedError(f'"{name}" is not implemented for {dtypes.OF_NUMPY[a.dtype].name}. Try x.float()')
    check_float(name, a)


def check_matrices(name: str, a, what: str = "A") -> None:
    """RuntimeError unless there are at least two dimensions."""
    if a.ndim < 2:
        raise RuntimeError(f"{name}: The input tensor {what} must have at least 2 dimensions, found shape {tuple(a.shape)}")


def check_square(name: str, a, what: str = "A") -> None:
    """RuntimeError unless the last two dimensions are equal."""
    check_matrices(name, a, what)
    if a.shape[-1] != a.shape[-2]:
        raise RuntimeError(f"{name}: {what} must be batches of square matrices, but they are {a.shape[-2]} by {a.shape[-1]} matrices")


def check_same_dtype(name: str, a, b, names: str = "A and B") -> None:
    """RuntimeError unless both have one dtype: linear algebra does not promote."""
    if a.dtype != b.dtype:
        found = " and ".join(str(getattr(x.dtype, "name", x.dtype)) for x in (a, b))
        raise RuntimeError(f"{name}: Expected {names} to have the same dtype, but found {found}. Convert one with .to(...)")


def check_system(name: str, a, b, left: bool) -> None:
    """RuntimeError unless the shapes fit the equation A X = B (or X A = B)."""
    check_square(name, a)
    check_matrices(name, b, "B")
    if a.shape[-1] != b.shape[-2 if left else -1]:
        raise RuntimeError(
            f"{name}: Incompatible shapes of A and B for the equation {'AX = B' if left else 'XA = B'} "
            f"({a.shape[-2]}x{a.shape[-1]} and {b.shape[-2]}x{b.shape[-1]})"
        )
    layout.broadcast_shapes(tuple(a.shape[:-2]), tuple(b.shape[:-2]))  # raises where the batches do not fit together


def refuse(name: str, info, reason, error: type[Exception] = LinAlgError) -> None:
    """Raise for the first matrix whose `info`, LAPACK's report, is not zero. `reason` makes a sentence of it: info -> str."""
    failed = np.flatnonzero(np.asarray(info.get() if hasattr(info, "get") else info))
    if failed.size:
        which = f"(Batch element {failed[0]}): " if info.ndim else ""
        raise error(f"{name}: {which}{reason(int(info.reshape(-1)[int(failed[0])]))}") from None


SINGULAR = "The diagonal element {} is zero, the inversion could not be completed because the input matrix is singular."


# -- pieces ----------------------------------------------------------------------------------------------------------------


def transposed(x):
    """The last two dimensions exchanged: a view."""
    return x.transpose(-2, -1)


def adjoint(x):
    """The conjugate transpose."""
    return conj(x.transpose(-2, -1))


def real(x):
    """The real part; a real tensor itself."""
    return x.real if x.is_complex() else x


def diagonal(x):
    """The diagonals of matrices: (..., N, N) -> (..., N)."""
    return x.diagonal(0, -2, -1)


def identity_like(x, n: int | None = None):
    """An identity matrix with the dtype and device of x: (N, N), without a batch."""
    n = x.shape[-1] if n is None else n
    eye = x.new_zeros((n, n))
    eye.diagonal(0, 0, 1).fill_(1)
    return eye


def as_diagonal(d):
    """Matrices with `d` on their diagonals and zeros elsewhere: (..., N) -> (..., N, N)."""
    return d.diag_embed(0, -2, -1)


def vector_as_matrix(a, b) -> bool:
    """Whether B in A X = B stands for vectors: it is 1-D, or has the batch dimensions of A and one more."""
    return b.dim() == 1 or (b.dim() == a.dim() - 1 and tuple(b.shape) == tuple(a.shape[:-1]))
