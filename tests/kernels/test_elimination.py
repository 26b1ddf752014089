"""Triangular systems, LU and Cholesky factors in compiled loops: around the sizes where they halve, for every triangle and layout."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau
from flambeau.kernels.linear_algebra import matrices
from flambeau.kernels.templates import elimination

SIZES = pytest.mark.parametrize("n", [2, 3, 31, 32, 33, 48, 65, 150])
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


@pytest.fixture(autouse=True)
def compiled():
    if not elimination.applies(np.eye(2)):
        pytest.skip("needs the compiled kernels and OpenBLAS")


def numbers(*shape, dtype):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def digits(dtype) -> float:
    return 2e-4 if dtype == np.float32 else 2e-12


@SIZES
@DTYPES
@pytest.mark.parametrize("turned", [False, True], ids=["by rows", "by columns"])
def test_triangular_systems(n, dtype, turned):
    """One triangle is read, whichever, with or without its diagonal, stored by rows or by columns; the other may hold anything."""
    full = numbers(n, n, dtype=dtype) / n + 2 * np.eye(n, dtype=dtype)
    for k in (1, 5, 64, 70):
        b = numbers(n, k, dtype=dtype)
        for upper in (False, True):
            for unit in (False, True):
                triangle = np.triu(full) if upper else np.tril(full)
                if unit:
                    np.fill_diagonal(triangle, 1)
                held = np.where(triangle == 0, dtype(np.nan), full)  # what is not to be read
                x = matrices.solve_triangular(np.asfortranarray(held) if turned else held, b, upper, unit)
                assert abs(triangle.astype(float) @ x - b).max() < digits(dtype)


@SIZES
@DTYPES
def test_lu(n, dtype):
    """P L U is the matrix, tall, wide or square, and no factor of L is larger than 1."""
    for shape in ((n, n), (n, 2 * n + 1), (2 * n + 1, n), (2, 3, n, n)):
        a = numbers(*shape, dtype=dtype)
        lu, pivots, info = matrices.lu_factor(a)
        k = min(shape[-2:])
        lower = np.tril(lu[..., :k], -1) + np.eye(shape[-2], k, dtype=dtype)
        product = np.ascontiguousarray(lower.astype(float) @ np.triu(lu[..., :k, :]))
        for at in np.ndindex(*shape[:-2]):
            for i in range(k - 1, -1, -1):
                product[at][[i, pivots[at][i] - 1]] = product[at][[pivots[at][i] - 1, i]]
        assert abs(product - a).max() < digits(dtype) and abs(lower).max() <= 1 and not info.any()


@SIZES
def test_a_zero_pivot_is_reported(n):
    """info is the first place, counted from 1, where the diagonal of U is zero; the factors are still those of the matrix."""
    a = numbers(n, n, dtype=np.float64)
    a[:, n // 2] = 0
    lu, _, info = matrices.lu_factor(a)
    assert info == n // 2 + 1 and np.isfinite(lu).all()


@SIZES
@DTYPES
def test_cholesky(n, dtype):
    """L L^T is the matrix, of which only the lower triangle is read; info names the first leading block that is not positive."""
    half = numbers(2, n, n, dtype=dtype)
    a = half @ half.swapaxes(-1, -2) / n + np.eye(n, dtype=dtype)
    if n > 16:  # smaller ones are NumPy's
        factor, info = matrices.cholesky(np.where(np.triu(np.ones((n, n)), 1), dtype(np.nan), a))
        assert abs(factor.astype(float) @ factor.swapaxes(-1, -2) - a).max() < digits(dtype) and not info.any()
        assert not np.triu(factor, 1).any()
    a[1, n // 2, n // 2] = -1
    assert matrices.cholesky(a)[1].tolist() == [0, n // 2 + 1]


def test_threads_change_no_bit():
    """Systems large enough to be shared out, and batches, have the same bits on one thread and on three."""
    found, before = [], flambeau.get_num_threads()
    a, b = numbers(300, 300, dtype=np.float32), numbers(300, 200, dtype=np.float32)
    many = numbers(20, 40, 40, dtype=np.float64)
    try:
        for threads in (1, 3):
            flambeau.set_num_threads(threads)
            found.append(
                (matrices.solve(a, b), matrices.inverse(many), matrices.cholesky(a @ a.T + 300 * np.eye(300, dtype=np.float32))[0])
            )
    finally:
        flambeau.set_num_threads(before)
    assert all(np.array_equal(x, y) for x, y in zip(*found, strict=True))
