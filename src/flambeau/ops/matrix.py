"""What matrix operations have in common: the checks they begin with, the errors they end with, and small pieces of their derivatives.

A matrix is the last two dimensions of a tensor; whatever comes before them is a batch. Checks take arrays (or anything with shape and
dtype) and the name to complain under, pieces take tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import numpy as np

from flambeau import dtypes
from flambeau.errors import LinAlgError
from flambeau.kernels import arrays, layout
from flambeau.kernels.linear_algebra import lapack
from flambeau.ops import specs
from flambeau.ops.declare import ArrayOp, composite, on_arrays
from flambeau.ops.reductions import conj

LAPACK_DTYPES = tuple(d.numpy for d in (dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128))


def from_lapack(
    name: str, results: str | Callable[..., str], *, square: bool = False, integers: type[Exception] = RuntimeError, by_columns: bool = True,
    **options,
):  # fmt: skip
    """Declare an operation of LAPACK's. Private ones are called linalg_solve_ex, say, as PyTorch names their results and nodes.

    The first argument is checked: matrices (`square` ones) of a dtype that LAPACK has; autocast has made float32 of half precision
    by then. `integers` is the error for integers. Where an algorithm does not converge, the error is PyTorch's. Results that are
    matrices lie in memory column after column, unless `by_columns` is False. `results` says what they look like, see specs.factors; or a
    function of the arguments does.
    """

    def declare(function) -> ArrayOp:
        op: ArrayOp = on_arrays(name=name, **{"method": False} | options)(function)
        shown, first, compute = name.replace("linalg_", "linalg."), op.parameters[0], op.forward

        @wraps(function)
        def forward(*args, **kwargs):
            a = args[0] if args else kwargs[first]
            check(a)
            try:
                found = compute(*args, **kwargs)
            except np.linalg.LinAlgError:
                finite = bool(arrays.module_of(a).isfinite(a).all())
                why = "has too many repeated singular or eigenvalues" if finite else "contained non-finite values"
                raise LinAlgError(f"{shown}: the algorithm failed to converge: the input {why}.") from None
            if not by_columns:
                return found
            ndim = a.ndim  # what has fewer dimensions are eigenvalues, pivots, or reports
            if type(found) is not tuple:
                return lapack.by_columns(found) if found.ndim >= ndim else found
            return tuple([lapack.by_columns(x) if x.ndim >= ndim else x for x in found])

        def check(a) -> None:
            (check_square if square else check_matrices)(shown, a, first)
            check_float(shown, a, integers=integers)

        @op.meta
        def _(**arguments):
            check(arguments[first])
            found = specs.factors(results if isinstance(results, str) else results(**arguments), arguments[first], by_columns)
            return found if op.returns else found[0]

        op.forward = forward
        return op

    return declare


def older(name: str, op: Callable, returns: str | None = None, **options):
    """Declare the older name of an operation on one matrix."""

    def same(input):
        return op(input)

    same.__module__ = op.forward.__module__  # the file that declares it
    return composite(name=name, doc=op.__doc__, returns=returns, **options)(same)


# -- checks ----------------------------------------------------------------------------------------------------------------


def check_float(name: str, *matrices, integers: type[Exception] = RuntimeError) -> None:
    """An error unless all are float32, float64 or complex, what LAPACK computes with; for integers some functions have another one."""
    for a in matrices:
        found = dtypes.of_array(a)
        if found.numpy not in LAPACK_DTYPES:
            whole = found.category < dtypes.FLOAT
            wanted = "Expected a floating point or complex tensor" if whole else "Low precision dtypes not supported"
            raise (integers if whole else NotImplementedError)(f"{name}: {wanted}. Got {found.name}. Try x.float()")


def check_matrices(name: str, a, what: str = "A") -> None:
    """RuntimeError unless there are at least two dimensions."""
    if a.ndim < 2:
        raise RuntimeError(
            f"{name}: {what} must have at least 2 dimensions, found shape {tuple(a.shape)}: expected a tensor with 2 or more dimensions"
        )


def check_square(name: str, a, what: str = "A") -> None:
    """RuntimeError unless the last two dimensions are equal."""
    check_matrices(name, a, what)
    if a.shape[-1] != a.shape[-2]:
        raise RuntimeError(f"{name}: {what} must be batches of square matrices, found {a.shape[-2]} x {a.shape[-1]}")


def check_same_dtype(name: str, a, b, names: str = "A and B") -> None:
    """RuntimeError unless both have one dtype: linear algebra does not promote."""
    if a.dtype != b.dtype:
        found = " and ".join(str(getattr(x.dtype, "name", x.dtype)) for x in (a, b))
        raise RuntimeError(f"{name}: Expected {names} to have the same dtype, but found {found}. Convert one with .to(...)")


def check_system(name: str, a, b, left: bool = True, names: str = "A and B") -> None:
    """RuntimeError unless dtypes and shapes fit the equation A X = B (or X A = B)."""
    check_square(name, a)
    check_same_dtype(name, a, b, names)
    check_matrices(name, b, "B")
    if a.shape[-1] != b.shape[-2 if left else -1]:
        equation, shapes = "AX = B" if left else "XA = B", f"{tuple(a.shape)} and {tuple(b.shape)}"
        raise RuntimeError(f"{name}: A and B do not fit into {equation}: {shapes}")
    layout.broadcast_shapes(tuple(a.shape[:-2]), tuple(b.shape[:-2]))  # raises where the batches do not fit together


def refuse(name: str, info, reason, error: type[Exception] = LinAlgError) -> None:
    """Raise for the first matrix whose `info`, LAPACK's report, is not zero. `reason` makes a sentence of it: info -> str."""
    if type(info) is arrays.MetaArray:
        return
    failed = np.flatnonzero(np.asarray(info.get() if hasattr(info, "get") else info))
    if failed.size:
        which = f"(Batch element {failed[0]}): " if info.ndim else ""
        raise error(f"{name}: {which}{reason(int(info.reshape(-1)[int(failed[0])]))}") from None


# -- pieces ----------------------------------------------------------------------------------------------------------------


def adjoint(x):
    """The conjugate transpose."""
    return conj(x.transpose(-2, -1))


def diagonal(x):
    """The diagonals of matrices: (..., N, N) -> (..., N)."""
    return x.diagonal(0, -2, -1)


def identity_like(x, n: int | None = None):
    """An identity matrix with the dtype and device of x: (N, N), without a batch."""
    n = x.shape[-1] if n is None else n
    eye = x.new_zeros((n, n))
    eye.diagonal(0, 0, 1).fill_(1)
    return eye


def vector_as_matrix(a, b) -> bool:
    """Whether B in A X = B stands for vectors: it is 1-D, or has the batch dimensions of A and one more."""
    return b.dim() == 1 or (b.dim() == a.dim() - 1 and tuple(b.shape) == tuple(a.shape[:-1]))
