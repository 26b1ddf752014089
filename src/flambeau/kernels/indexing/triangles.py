"""Triangles of matrices by compiled loops, row by row: each is told at which column the diagonal crosses it.

Rows of a few elements are not worth a call each: many small matrices are masked, as bits with all of them or none.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from flambeau.kernels.native import native

SHORT = 64  # elements of a row


def triangle(matrices: np.ndarray, lower: bool, diagonal: int) -> np.ndarray | None:
    """A row-major copy with zeros on the other side of the diagonal. None where there is no compiled loop for it."""
    run = ready(matrices, lower, diagonal)
    found = NotImplemented if run is None else run(matrices)
    return None if found is NotImplemented else found


def ready(matrices: np.ndarray, lower: bool, diagonal: int):
    """What `triangle` does with arrays like this one, as a function of them; or None."""
    loop = native.kernel("move.triangle")
    if loop is native.not_compiled or not matrices.size or matrices.strides[-1] != matrices.itemsize or _are_small(matrices):
        return None
    into, empty, shape, dtype = loop.into, native.empty, matrices.shape, matrices.dtype
    numbers = _crossings(shape[-2], diagonal), matrices.itemsize, lower

    def run(matrices):
        out = empty(shape, dtype)
        done = into(out, matrices, *numbers)
        return done if done is NotImplemented else out

    run.into = lambda out, matrices: into(out, matrices, *numbers)
    return run


def clear(matrices: np.ndarray, lower: bool, diagonal: int) -> bool:
    """Write zeros on the other side of the diagonal. False where there is no compiled loop for it."""
    if _are_small(matrices):
        bits = _mask(*matrices.shape[-2:], lower, diagonal, matrices.itemsize)
        seen = matrices.view(bits.dtype)
        np.bitwise_and(seen, bits, out=seen)
        return True
    loop = native.kernel("move.clear")
    if loop is native.not_compiled or not matrices.size:
        return False
    like = native.strided_view(np.zeros((), matrices.dtype), matrices.shape, (0,) * matrices.ndim, 0)  # says how far the loop goes
    return loop.into(matrices, like, _crossings(matrices.shape[-2], diagonal), matrices.itemsize, lower) is not NotImplemented


def _are_small(matrices: np.ndarray) -> bool:
    """Whether there are many matrices of short rows."""
    return matrices.ndim > 2 and matrices.shape[-1] <= SHORT and matrices.shape[-2] <= 1024 and matrices.itemsize <= 8


@lru_cache(64)
def _mask(rows: int, columns: int, lower: bool, diagonal: int, size: int) -> np.ndarray:
    kept = np.arange(columns) <= _crossings(rows, diagonal) if lower else np.arange(columns) >= _crossings(rows, diagonal)
    return -kept.astype(f"i{size}")


@lru_cache(64)
def _crossings(rows: int, diagonal: int) -> np.ndarray:
    return np.arange(diagonal, diagonal + rows).reshape(rows, 1)
