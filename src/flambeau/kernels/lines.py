"""Lines: running the compiled loops that walk an array along one dimension and write values, and indices, as they go.

An array seen as (outer, n, inner) has outer * inner lines of n elements, `inner` apart. A loop takes one line, where they are rows, or up
to `width` lines that lie side by side, and walks them together. scan_loops.py prints those that go from one element to the next,
order_loops.py those that sort and select.

To the launcher a line loop is a row program whose operand 0, the one it cuts into blocks, is the input: the row is the n * width elements
of the lines it takes. Where the results lie is their own affair: along that row they do not move.
"""

from __future__ import annotations

from math import prod

import numpy as np

from flambeau.kernels import arrays, native
from flambeau.kernels.arrays import Array

INT64 = np.dtype(np.int64)
COLUMNS = 512  # lines walked side by side by loops that go from one element to the next
SIDE = 16  # lines sorted at a time where lines are columns: a cache line of float32


def lines(name: str, array: Array, dim: int, k: int | None = None, *params: float, width: int = COLUMNS, indices: bool = True):
    """[values, indices] or [values], `k` or all n of them along `dim`; None where there is no compiled loop.

    Fresh and dense, with the array's order of dimensions in memory.
    """
    loop = native.kernel(f"lines.{name}")
    if type(array) is not np.ndarray or loop is native.not_compiled or not array.size or array.shape[dim] >= 2**31:
        return None
    strides, memory = array.strides, list(range(array.ndim))
    memory.sort(key=lambda d: -strides[d])
    if memory != sorted(memory) and all(strides):
        found = lines(name, array.transpose(memory), memory.index(dim), k, *params, width=width, indices=indices)
        return found and [f.transpose([memory.index(d) for d in range(array.ndim)]) for f in found]
    shape, n, inner = array.shape, array.shape[dim], prod(array.shape[dim + 1 :])
    k = n if k is None else k
    outer = array.size // (n * inner)
    source = arrays.contiguous(array)
    if not source.flags.writeable:  # what the launcher cuts into blocks is for it an output
        source = source.copy()
    found = [arrays.empty((*shape[:dim], k, *shape[dim + 1 :]), dtype) for dtype in (array.dtype, INT64)[: 1 + indices]]
    whole = inner // width * width if inner > 1 else 0
    for first, count, side in ((0, whole // width, width), (whole, 1, inner - whole)):
        if count * side:
            seen = native.strided_view(source, (outer, count, n * side), (n * inner, side, 1), first)
            results = [native.strided_view(f, (outer, count, n * side), (k * inner, side, 0), first) for f in found]
            if loop.into(seen, *results, n, inner, k, *params) is NotImplemented:
                return None
    return found


def first_of_all(name: str, array: Array):
    """[value, place among all elements in order] of the maximum or minimum, each of one element; None where there is no compiled loop.

    Long arrays are cut into rows that threads can share. What is left over counts with the results of the rows.
    """
    flat, row = arrays.contiguous(array).reshape(-1), 1 << 15
    whole = flat.size // row
    if whole < 2 or type(flat) is not np.ndarray:
        return lines(name, flat, 0, 1)
    found = lines(name, flat[: whole * row].reshape(whole, row), 1, 1)
    if found is None:
        return None
    values, places = (
        found[0].reshape(-1),
        np.concatenate([found[1].reshape(-1) + np.arange(whole) * row, np.arange(whole * row, flat.size)]),
    )
    value, place = lines(name, np.concatenate([values, flat[whole * row :]]), 0, 1)
    return [value, places[place]]
