"""Triangles of matrices by compiled loops, row by row: each is told at which column the diagonal crosses it."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from flambeau.kernels import native


def triangle(matrices: np.ndarray, lower: bool, diagonal: int) -> np.ndarray | None:
    """A row-major copy with zeros on the other side of the diagonal. None where there is no compiled loop for it."""
    loop = native.kernel("move.triangle")
    if loop is native.not_compiled or not matrices.size or matrices.strides[-1] != matrices.itemsize:
        return None
    out = native.empty(matrices.shape, matrices.dtype)
    found = loop.into(out, matrices, _crossings(matrices.shape[-2], diagonal), matrices.itemsize, lower)
    return None if found is NotImplemented else out


def clear(matrices: np.ndarray, lower: bool, diagonal: int) -> bool:
    """Write zeros on the other side of the diagonal. False where there is no compiled loop for it."""
    loop = native.kernel("move.clear")
    if loop is native.not_compiled or not matrices.size:
        return False
    like = native.strided_view(np.zeros((), matrices.dtype), matrices.shape, (0,) * matrices.ndim, 0)  # says how far the loop goes
    return loop.into(matrices, like, _crossings(matrices.shape[-2], diagonal), matrices.itemsize, lower) is not NotImplemented


@lru_cache(64)
def _crossings(rows: int, diagonal: int) -> np.ndarray:
    return np.arange(diagonal, diagonal + rows).reshape(rows, 1)
