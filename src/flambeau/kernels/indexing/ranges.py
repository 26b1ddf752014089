"""Numbers at equal distances, written by all threads: rows of a long result, each of which is told the number of its first element."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from flambeau.kernels.native import native

ROW = 4096  # elements
EXACT = 2**53  # up to here a double holds every integer


def arithmetic(start, step, n: int, dtype: np.dtype, name: str) -> np.ndarray | None:
    """start + step * i for i below n, computed from the index in double (integers: as such); None where there is no compiled loop."""
    if dtype.kind in "iu" and max(abs(start), abs(step), abs(start + step * n), n) >= EXACT:
        return None
    return _written(f"move.range_{name}", n, dtype, start, step)


def spread(start, end, n: int, kind: np.dtype, name: str) -> np.ndarray:
    """n numbers from start to end, of a dtype: the lower half counted up from the start, the upper half down from the end."""
    real = kind.kind == "f" and kind.itemsize > 2  # half precision is computed in its own digits, as PyTorch does
    with np.errstate(all="ignore"):
        first, last = (kind.type(start), kind.type(end)) if real else (np.array(start).astype(kind), np.array(end).astype(kind))
        step = ((last - first) / kind.type(max(n - 1, 1))).astype(kind)
        found = between(float(first), float(last), float(step), n, kind, name) if real else None
        if found is not None:
            return found
        out = np.empty(n, kind)
        if real:
            kind = np.dtype(np.float64)  # what is multiplied and added is rounded once
            first, last, step = first.astype(kind), last.astype(kind), step.astype(kind)
        index, half = np.arange(n), n // 2
        out[:half] = first + step * index[:half].astype(kind)
        out[half:] = last - step * (n - 1 - index[half:]).astype(kind)
    return out


def between(start: float, end: float, step: float, n: int, dtype: np.dtype, name: str) -> np.ndarray | None:
    """The same from both ends: the lower half is counted up from the start, the upper half down from the end, so that both are exact."""
    return _written(f"move.spread_{name}", n, dtype, start, end, step, n, n // 2)


def _written(name: str, n: int, dtype: np.dtype, *numbers) -> np.ndarray | None:
    loop = native.kernel(name)
    if loop is native.not_compiled:
        return None
    out = native.empty((n,), dtype)
    whole, view = n // ROW, native.strided_view
    for rows, width, first in ((whole, ROW, 0), (1, n % ROW, whole * ROW)):
        if rows * width:
            at = view(_firsts(first, rows), (rows, width), (1, 0), 0)
            if loop.into(view(out, (rows, width), (width, 1), first), at, *numbers) is NotImplemented:
                return None
    return out


@lru_cache(64)
def _firsts(first: int, rows: int) -> np.ndarray:
    return np.arange(first, first + rows * ROW, ROW)
