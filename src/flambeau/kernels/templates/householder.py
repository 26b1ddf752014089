"""QR of small matrices by the compiled loops of householder_loops.py, in place. matrices.py is what uses this."""

from __future__ import annotations

from math import prod

import numpy as np

from flambeau.kernels.arrays import Array
from flambeau.kernels.native import native

MOST = 32  # reflections, and
ELEMENTS = 12500  # of a matrix: what both are found out for, see Note [the last bits of QR]
DTYPES = (np.dtype(np.float32), np.dtype(np.float64))


def applies(a: Array) -> bool:
    """Whether there are loops for these matrices."""
    m, n = a.shape[-2:]
    fits = min(m, n) <= MOST and m * n <= ELEMENTS and a.size > 0
    return fits and type(a) is np.ndarray and a.dtype in DTYPES and native.kernel("householder.factor") is not native.not_compiled


def factor(matrix: np.ndarray, tau: np.ndarray) -> None:
    """R, and below it the vectors of the reflections, take the place of matrices stored column after column. (..., M, N), (..., K)."""
    _run("factor", matrix, tau)


def product(vectors: np.ndarray, tau: np.ndarray) -> None:
    """The first columns of the product of reflections take the place of their vectors. (..., M, N), (..., K)."""
    _run("product", vectors, tau, tau.shape[-1])


def _run(name: str, matrix: np.ndarray, tau: np.ndarray, *numbers: int) -> None:
    *batch, m, n = matrix.shape
    rows = prod(batch), m * n  # a matrix is a row to the launcher, along which tau does not move
    flat = native.strided_view(matrix, rows, (m * n, 1), 0)
    beside = native.strided_view(tau, rows, (tau.shape[-1], 0), 0)
    if native.kernel(f"householder.{name}").into(flat, beside, m, n, *numbers) is NotImplemented:
        raise AssertionError(f"householder.{name} does not take {matrix.shape} of {matrix.dtype}")
