"""Arrays put side by side on a GPU in one launch: cat and stack.

Cut before the dimension along which they are joined, every array is rows one after another, and a row of the result is a row of each. So a
thread moves one unit of a row, the largest that all rows and addresses are whole multiples of.
"""

from __future__ import annotations

import math
import struct
from functools import lru_cache

import numpy as np

from flambeau.kernels import arrays
from flambeau.kernels.cuda.launch import compiled, where_it_is
from flambeau.kernels.language.print_cuda import THREADS
from flambeau.kernels.templates.cuda_small import MOST, print_join


@where_it_is(0)
def join(out, pieces, dim: int) -> bool:
    """Write the pieces one after another along `dim` of `out`, which they fill. False where `out` is neither row-major nor channels last."""
    if not out.flags.c_contiguous:
        order = (0, *range(2, out.ndim), 1)
        turned = out.transpose(order) if out.ndim > 3 else out
        if not turned.flags.c_contiguous or pieces[0].ndim != out.ndim:
            return False
        return join(turned, [a.transpose(order) for a in pieces], order.index(dim))
    if not out.size:
        return True
    outer, size = math.prod(out.shape[:dim]), out.itemsize
    pieces = [arrays.contiguous(a) for a in pieces if a.size]
    rows = tuple([a.size // outer * size for a in pieces])
    width, start, device = sum(rows), 0, out.data.device_id
    for first in range(0, len(pieces), MOST):
        some, own = pieces[first : first + MOST], rows[first : first + MOST]
        address = out.data.ptr + start
        sources = [a.data.ptr for a in some]
        unit = math.gcd(16, address, width, *sources, *own)
        wide = outer * width // unit >= 2**31
        kernel = compiled(print_join, "fl_join", device, unit, wide)
        threads = outer * max(own) // unit
        grid = ((threads + THREADS - 1) // THREADS, len(some))
        kernel(grid, (THREADS,), (address, outer, width // unit, struct.pack(f"{len(some)}q", *sources) + _places(own, unit)))
        start += sum(own)
    return True


@lru_cache(1024)
def _places(rows: tuple[int, ...], unit: int) -> bytes:
    """The struct Parts behind the addresses: where each row begins in a row of the result, and how long it is, in units."""
    fields = np.zeros(3 * MOST, np.int64)
    fields[MOST : MOST + len(rows)] = np.cumsum((0, *rows[:-1])) // unit
    fields[2 * MOST : 2 * MOST + len(rows)] = np.array(rows) // unit
    return fields[len(rows) :].tobytes()
