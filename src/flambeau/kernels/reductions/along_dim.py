"""Lines: running the compiled loops that walk an array along one dimension and write values, and indices, as they go.

An array seen as (outer, n, inner) has outer * inner lines of n elements, `inner` apart. A loop takes one line, where they are rows, or up
to `width` lines that lie side by side, and walks them together. templates/scan_loops.py prints those that go from one element to the next,
templates/sorting_loops.py those that sort and select.

To the launcher a line loop is one over rows whose operand 0, the one it cuts into blocks, is the input: the row is the n * width elements
of the lines it takes. Where the results lie is their own affair: along that row they do not move.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

import numpy as np

from flambeau.kernels import arrays
from flambeau.kernels.arrays import Array
from flambeau.kernels.native import native

INT64 = np.dtype(np.int64)
COLUMNS = 512  # lines walked side by side by loops that go from one element to the next
SIDE = 16  # lines sorted at a time where lines are columns: a cache line of float32


def lines(
    name: str, array: Array, dim: int, k: int | None = None, *params: float, width: int = COLUMNS, indices: bool = True, drop: bool = False
):
    """[values, indices] or [values], `k` or all n of them along `dim`; None where there is no compiled loop.

    Fresh and dense, with the array's order of dimensions in memory. `drop`: the one of each line is given without the dimension.
    """
    loop = _loop(name)
    if type(array) is not np.ndarray or loop is None or not array.size or array.shape[dim] >= 2**31:
        return None
    memory, shape, numbers, launches = _plan(array.shape, array.strides, dim, k, width)
    source = array if memory is None else array.transpose(memory)
    flags = source.flags
    if not flags.c_contiguous:
        source = arrays.contiguous(source)
    elif not flags.writeable:  # what the launcher cuts into blocks is for it an output
        source = source.copy()
    if drop and memory is None:
        shape = shape[:dim] + shape[dim + 1 :]
    found = [native.empty(shape, array.dtype)]
    if indices:
        found.append(native.empty(shape, INT64))
    for sizes, steps, result_steps, first in launches:
        results = [native.strided_view(f, sizes, result_steps, first) for f in found]
        if loop(native.strided_view(source, sizes, steps, first), *results, *numbers, *params) is NotImplemented:
            return None
    if memory is None:
        return found
    found = [f.transpose([memory.index(d) for d in range(array.ndim)]) for f in found]
    return [f.reshape(f.shape[:dim] + f.shape[dim + 1 :]) for f in found] if drop else found


def ready(
    name: str, array: np.ndarray, dim: int, k: int | None = None, *params: float, width: int = COLUMNS, indices: bool = True, drop=False
):
    """What `lines` does with row-major arrays like this one, as a function of them; None where there is more to it than one launch."""
    loop = _loop(name)
    if loop is None or not array.size or not array.ndim or array.shape[dim] >= 2**31 or not array.flags.c_contiguous:
        return None
    memory, shape, numbers, launches = _plan(array.shape, array.strides, dim, k, width)
    if memory is not None or len(launches) > 1:
        return None
    sizes, steps, result_steps, first = launches[0]
    shape, dtype = shape[:dim] + shape[dim + 1 :] if drop else shape, array.dtype
    empty, view = native.empty, native.strided_view
    numbers = *numbers, *params

    def into(out, array):
        if not array.flags.writeable:  # what the launcher cuts into blocks is for it an output
            return NotImplemented
        done = loop(view(array, sizes, steps, first), view(out, sizes, result_steps, first), *numbers)
        return done if done is NotImplemented else out

    def values_alone(array):
        return into(empty(shape, dtype), array)

    values_alone.into = into

    def both(array):
        if not array.flags.writeable:
            return NotImplemented
        values, places = empty(shape, dtype), empty(shape, INT64)
        seen = view(values, sizes, result_steps, first), view(places, sizes, result_steps, first)
        done = loop(view(array, sizes, steps, first), *seen, *numbers)
        return done if done is NotImplemented else (values, places)

    return both if indices else values_alone


@lru_cache(None)
def _loop(name: str):
    return getattr(native.kernel(f"lines.{name}"), "into", None)


@lru_cache(maxsize=1024)  # programs walk arrays of the same few shapes again and again
def _plan(shape, strides, dim: int, k: int | None, width: int) -> tuple:
    """(order of the dimensions in memory or None, shape of the results in that order, (n, inner, k), launches)."""
    memory = sorted(range(len(shape)), key=lambda d: -strides[d])
    if memory == sorted(memory) or not all(strides):
        memory = None
    else:
        shape, dim = tuple(shape[d] for d in memory), memory.index(dim)
    n, outer, inner = shape[dim], prod(shape[:dim]), prod(shape[dim + 1 :])
    k = n if k is None else k
    whole = inner // width * width if inner > 1 else 0
    launches = [
        ((outer, count, n * side), (n * inner, side, 1), (k * inner, side, 0), first)
        for first, count, side in ((0, whole // width, width), (whole, 1, inner - whole))
        if count * side
    ]
    return memory, (*shape[:dim], k, *shape[dim + 1 :]), (n, inner, k), launches


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
    values = np.concatenate([found[0].reshape(-1), flat[whole * row :]])
    places = np.concatenate([found[1].reshape(-1) + np.arange(whole) * row, np.arange(whole * row, flat.size)])
    value, place = lines(name, values, 0, 1)
    return [value, places[place]]
