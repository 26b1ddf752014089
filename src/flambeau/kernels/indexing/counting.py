"""Counting in compiled loops (templates/counting_loops.py): how often each whole number occurs, and how many elements lie in equal intervals.

Both answer None where there is no such loop, or where there are so many bins that counts would be larger than what is counted.
"""

from __future__ import annotations

import numpy as np

from flambeau.kernels import arrays
from flambeau.kernels.arrays import Array
from flambeau.kernels.native import native
from flambeau.kernels.reductions.folding import fold

INT64 = np.dtype(np.int64)
CHUNK = 1 << 15  # elements counted by one thread, at least


def values(x: Array, bins: int) -> Array | None:
    """How often 0 ... bins - 1 occur in x (N), which has no other elements. -> (bins) int64."""
    return _count("count.values", x, bins, bins, (bins,))


def intervals(x: Array, bins: int, low: float, high: float) -> Array | None:
    """How many elements of x (N) lie in each of `bins` equal intervals from low to high. -> (bins) int64."""
    found = _count("count.intervals", x, bins, bins + 1, (bins, low, high))
    return None if found is None else found[:bins]


def _count(name: str, x: Array, bins: int, places: int, numbers: tuple) -> Array | None:
    loop, chunk = native.kernel(name), max(CHUNK, 4 * bins)
    if type(x) is not np.ndarray or loop is native.not_compiled or not x.size or 4 * bins > max(x.size, CHUNK):
        return None
    x = arrays.contiguous(x)
    whole = x.size // chunk
    counts = native.empty((whole + 1, places), INT64)
    for first, count, length in ((0, whole, chunk), (whole, 1, x.size - whole * chunk)):
        if count:
            seen = native.strided_view(x, (count,), (length,), first * chunk)
            if loop.into(native.strided_view(counts, (count,), (places,), first * places), seen, length, *numbers) is NotImplemented:
                return None
    return fold("sum", counts, (0,), False, INT64)
