"""Triangular systems, LU and Cholesky factors by the compiled loops of elimination_loops.py, in place. matrices.py is what uses this.

OpenBLAS solves triangular systems, and with them factors matrices, at a fifth to a third of the speed of a product, on one thread.
Here they are products of halves: 4 ms became 1.4 for a system of 500 x 500 with 500 right-hand sides.
"""

from __future__ import annotations

from math import prod

import numpy as np

from flambeau.kernels import native
from flambeau.kernels.arrays import Array
from flambeau.kernels.lapack import library

DTYPES = (np.dtype(np.float32), np.dtype(np.float64))
INT32 = np.dtype(np.int32)


def applies(a: Array) -> bool:
    """Whether there are loops for these matrices. (They need the library: its products are what the loops are made of.)"""
    return (
        type(a) is np.ndarray
        and a.dtype in DTYPES
        and a.size > 0
        and max(a.shape[-2:]) > 1
        and native.kernel("elimination.solve_float32") is not native.not_compiled
        and library() is not None
    )


def solve(a: np.ndarray, x: np.ndarray, upper: bool, unit: bool) -> None:
    """The solutions of a X = x take the place of x. (..., N, N), (..., N, K); a's rows or columns are dense, and so is x."""
    n, k = x.shape[-2:]
    down, right = (s // a.itemsize for s in a.strides[-2:])
    _run("solve", x, a, n, k, down, right, int(upper), int(unit))


def lu(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """L and U take the place of dense matrices. -> (pivots, info), both int32. (..., M, N) -> (..., min(M, N)), (...)."""
    *batch, m, n = matrix.shape
    found = np.empty((*batch, min(m, n) + 1), INT32)
    _run("lu", matrix, found, m, n)
    if (found[..., -1] < 0).any():
        raise MemoryError(f"no memory for a copy of {m} x {min(n, 32)} elements")
    return found[..., :-1].copy(), found[..., -1].copy()


def cholesky(matrix: np.ndarray) -> np.ndarray:
    """U with U^T U = matrix, of which the upper triangle is read, takes the place of dense matrices. -> info, int32. (..., N, N) -> (...)."""
    info = np.empty(matrix.shape[:-2], INT32)
    _run("cholesky", matrix, info, matrix.shape[-1])
    return info


def exchange(x: np.ndarray, pivots: np.ndarray) -> None:
    """Row i and row pivots[i] - 1 of dense x change places, for i = 0, 1, ... (..., N, K), (..., N)."""
    _run("exchange", x, pivots, *x.shape[-2:])


def _run(name: str, matrix: np.ndarray, beside: np.ndarray, *numbers: int) -> None:
    *batch, m, n = matrix.shape
    rows = native.strided_view(matrix, (prod(batch), m * n), (m * n, 1), 0)  # a matrix is a row to the launcher,
    steps = (*(s // beside.itemsize for s in beside.strides[: len(batch)]), 0)  # along which what is beside it does not move
    seen = native.strided_view(beside, (*batch, m * n), steps, 0)
    if native.kernel(f"elimination.{name}_{matrix.dtype.name}").into(rows.reshape(*batch, m * n), seen, *numbers) is NotImplemented:
        raise AssertionError(f"elimination.{name} does not take {matrix.shape} of {matrix.dtype} with {beside.shape}")
