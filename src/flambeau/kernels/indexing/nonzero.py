"""Where an array is not zero, by compiled loops on all threads.

Counted first: how many places each row of 8192 elements has says where those of the next one begin. Then all rows are written side by side.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flambeau import dtypes
from flambeau.kernels.native import native
from flambeau.kernels.reductions import folding

INT64 = np.dtype(np.int64)
FIRST = np.zeros(1, INT64)
ROW = 8192  # elements
MAX_DIMS = 10  # as many numbers as a loop takes, less two


def places(array: np.ndarray, shape: Sequence[int]) -> np.ndarray | None:
    """The indices of what is not zero in a contiguous array seen in this shape: (dimensions, count), int64, in row-major order.

    None where there is no compiled loop for it.
    """
    name = dtypes.of_array(array).name
    loop = native.kernel(f"move.places_{name}")
    if loop is native.not_compiled or not array.size or not 0 < len(shape) <= MAX_DIMS:
        return None
    flat = array.reshape(-1)
    if not flat.flags.writeable:  # what the launcher cuts into blocks is for it an output
        flat = flat.copy()
    whole = flat.size // ROW
    parts = [(rows, width, first) for rows, width, first in ((whole, ROW, 0), (1, flat.size % ROW, whole * ROW)) if rows * width]
    seen = [native.strided_view(flat, (rows, width), (width, 1), first) for rows, width, first in parts]
    counts = [folding.fold("count_nonzero", part, (1,), False, INT64) for part in seen]
    if any(c is None for c in counts):
        return None
    before = firsts = FIRST
    count = int(counts[0][0])
    if flat.size > ROW:
        ends = np.cumsum(np.concatenate(counts))
        before, firsts, count = np.concatenate([FIRST, ends[:-1]]), np.arange(0, flat.size, ROW), int(ends[-1])
    out = native.empty((len(shape), count), INT64)
    if not count:
        return out
    numbers = count, len(shape), *shape, *(1,) * (MAX_DIMS - len(shape))
    for part, (rows, width, first) in zip(seen, parts, strict=True):
        each = [native.strided_view(a, (rows, width), (1, 0), first // ROW) for a in (before, firsts)]
        if loop.into(part, *each, out[:1, :1], *numbers) is NotImplemented:
            return None
    return out
