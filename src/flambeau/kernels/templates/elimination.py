"""Triangular systems, LU and Cholesky factors by the compiled loops of elimination_loops.py, in place. matrices.py is what uses this.

OpenBLAS solves triangular systems, and with them factors matrices, at a fifth to a third of the speed of a product, on one thread.
Here they are products of halves: 4 ms became 1.4 for a system of 500 x 500 with 500 right-hand sides.
"""

from __future__ import annotations

import numpy as np

from flambeau.kernels.arrays import Array
from flambeau.kernels.native import native
from flambeau.kernels.templates import gemm

DTYPES = (np.dtype(np.float32), np.dtype(np.float64))
INT32 = np.dtype(np.int32)


def applies(a: Array) -> bool:
    """Whether there are loops for these matrices. (They are made of products, which must be compiled too.)"""
    return (
        type(a) is np.ndarray
        and a.dtype in DTYPES
        and a.size > 0
        and max(a.shape[-2:]) > 1
        and native.kernel("elimination.solve_float32") is not native.not_compiled
        and gemm.bound()
    )


def solve(a: np.ndarray, x: np.ndarray, upper: bool, unit: bool) -> None:
    """The solutions of a X = x take the place of x. (..., N, N), (..., N, K); a's rows or columns are dense, and so is x."""
    down, right = (s // a.itemsize for s in a.strides[-2:])
    _run("solve", x, (a, 2), *x.shape[-2:], down, right, int(upper), int(unit))


def invert(a: np.ndarray, upper: bool, unit: bool) -> np.ndarray:
    """The inverse of a triangle, dense. (..., N, N), rows or columns dense -> (..., N, N)."""
    found, (down, right) = native.empty(a.shape, a.dtype), (s // a.itemsize for s in a.strides[-2:])
    _run("invert", found, (a, 2), a.shape[-1], down, right, int(upper), int(unit))
    return found


def exchange_back(x: np.ndarray, pivots: np.ndarray) -> None:
    """Row i and row pivots[i] - 1 of dense x change places, from the last i to the first. (..., N, K), (..., N)."""
    _run("exchange", x, (pivots, 1), *x.shape[-2:])


def lu(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """L and U take the place of dense matrices. -> (pivots, info), both int32. (..., M, N) -> (..., min(M, N)), (...)."""
    *batch, m, n = matrix.shape
    found = np.empty((*batch, min(m, n) + 1), INT32)
    _run("lu", matrix, (found, 1), m, n)
    if (found[..., -1] < 0).any():
        raise MemoryError(f"no memory for a copy of {m} x {min(n, 32)} elements")
    return found[..., :-1].copy(), found[..., -1].copy()


def solve_factored(factors: np.ndarray, pivots: np.ndarray, x: np.ndarray) -> None:
    """The solutions of A X = x, given what `lu` made of A, take the place of x. (..., N, N), (..., N), (..., N, K), all dense."""
    _run("factored", x, (factors, 2), (pivots, 1), *x.shape[-2:])


def cholesky(matrix: np.ndarray) -> np.ndarray:
    """U with U^T U = matrix, of which the upper triangle is read, takes the place of dense matrices. -> info, int32. (..., N, N) -> (...)."""
    info = np.empty(matrix.shape[:-2], INT32)
    _run("cholesky", matrix, (info, 0), matrix.shape[-1])
    return info


def _run(name: str, matrix: np.ndarray, *others) -> None:
    """Run a loop. Of `others`, those that lie beside the matrices come with the number of their own dimensions, then there are numbers."""
    *batch, m, n = matrix.shape
    shape, view = (*batch, m * n), native.strided_view  # a matrix is a row to the launcher, along which what is beside it does not move
    operands = [matrix.reshape(shape)]
    for other in others:
        if type(other) is tuple:
            array, own = other
            other = view(array, shape, (*[s // array.itemsize for s in array.strides[: array.ndim - own]], 0), 0)
        operands.append(other)
    if native.kernel(f"elimination.{name}_{matrix.dtype.name}").into(*operands) is NotImplemented:
        raise AssertionError(f"elimination.{name} does not take {matrix.shape} of {matrix.dtype}")
