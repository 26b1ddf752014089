"""Order: sorting, selecting and searching in arrays. NaN counts as greater than every number, infinity included.

Functions take arrays with at least one dimension unless they say otherwise, and give fresh arrays.
"""

from __future__ import annotations

from functools import cmp_to_key

import numpy as np

from flambeau.kernels import arrays
from flambeau.kernels.arrays import Array
from flambeau.kernels.native import native
from flambeau.kernels.reductions.along_dim import SIDE, lines
from flambeau.kernels.reductions.along_dim import ready as lines_ready
from flambeau.kernels.reductions.reduce import unhalved
from flambeau.kernels.reductions.scan import accumulated

ALWAYS = 64  # a line of up to so many elements is sorted in memory of the loop's own (order_loops.BYTES), which cannot be missing


def sort(array: Array, dim: int, descending: bool) -> tuple[Array, Array]:
    """(values, indices) in order along `dim`, equal elements in the order they came in. Both keep the array's memory order."""
    found = _lines("sort", array, dim, array.shape[dim], descending)
    if found is None:
        indices = argsort(array, dim, descending)
        found = [take(array, indices, dim), indices]
    elif all(array.strides):  # an expanded array has no memory order of its own
        return tuple(found)
    return _like(array, found[0]), _like(array, found[1])


def argsort(array: Array, dim: int, descending: bool) -> Array:
    """The indices that sort `array` along `dim`, stably."""
    found = _lines("sort", array, dim, array.shape[dim], descending)
    if found is not None:
        return found[1]
    xp = arrays.module_of(array)
    keys = unhalved(array)
    if not descending:
        return xp.argsort(keys, axis=dim, kind="stable")
    # Backwards from the end: sorted ascending from the last element on, then reversed, equal elements stand in order again.
    backwards = xp.argsort(xp.flip(keys, dim), axis=dim, kind="stable")
    return array.shape[dim] - 1 - xp.flip(backwards, dim)


def topk(array: Array, k: int, dim: int, largest: bool) -> tuple[Array, Array]:
    """(values, indices) of the `k` largest (or smallest) elements along `dim`, in order."""
    found = _lines("topk", array, dim, k, largest)
    if found is not None:
        return tuple(map(arrays.contiguous, found))
    indices = arrays.module_of(array).ascontiguousarray(_part(argsort(array, dim, largest), dim, 0, k))
    return take(array, indices, dim), indices


def _lines(name: str, array: Array, dim: int, k: int, option: int):
    """What the compiled loop finds (see sorting_loops.py), or None."""
    if not k:
        return None
    found = lines(name, array, dim, k, option, width=SIDE)
    if found is not None and array.shape[dim] > ALWAYS and (_part(found[1], dim, 0, 1) < 0).any():
        raise MemoryError(
            f"{name}: a line of {array.shape[dim]} elements needs up to {32 * array.shape[dim]} bytes to work in, for each thread"
        )
    return found


def ready(name: str, array: np.ndarray, k: int, dim: int, option: int):
    """What `sort` or `topk` does with short lines like these; None where there is more to it than one launch."""
    return lines_ready(name, array, dim, k, option, width=SIDE) if k and array.ndim and array.shape[dim] <= ALWAYS else None


def kth_smallest(array: Array, k: int, dim: int) -> Array:
    """The index of the element that would stand at place `k` (from 0) if the array were sorted along `dim`; `dim` keeps size 1."""
    found = _lines("kth", array, dim, 1, k)
    return _part(argsort(array, dim, False), dim, k, 1) if found is None else found[1]


def median(array: Array, dim: int, ignore_nan: bool) -> Array:
    """The index of the middle element (the lower of two), or of a NaN if there is one and they are not ignored; `dim` keeps size 1."""
    found = _lines("kth", array, dim, 1, -2 if ignore_nan else -1)
    if found is not None:
        return found[1]
    xp = arrays.module_of(array)
    n, keys = array.shape[dim], unhalved(array)
    nans = (keys != keys).sum(axis=dim, keepdims=True)
    place = xp.maximum(n - nans - 1, 0) // 2 if ignore_nan else xp.where(nans > 0, n - nans, (n - 1) // 2)  # NaNs stand last
    return take(argsort(array, dim, False), place, dim)


def mode(array: Array, dim: int) -> Array:
    """The index of the last of the most frequent elements (of the smallest, if several are most frequent); `dim` keeps size 1."""
    found = _lines("mode", array, dim, 1, 0)
    if found is not None:
        return found[1]
    xp = arrays.module_of(array)
    order = argsort(array, dim, False)
    ordered = take(unhalved(array), order, dim)
    places = xp.arange(array.shape[dim]).reshape([-1 if d == dim else 1 for d in range(array.ndim)])
    begins = xp.ones(ordered.shape, np.bool_)  # where a run of equal elements starts
    _part(begins, dim, 1, None)[...] = _part(ordered, dim, 1, None) != _part(ordered, dim, 0, -1)
    run = places - accumulated(xp.maximum, xp.where(begins, places, 0), dim)  # how many equals stand before each
    return take(order, run.argmax(axis=dim, keepdims=True), dim)


def groups(rows: Array, incomparable: bool = False) -> tuple[Array, Array]:
    """(order, begins) for rows (N, C): the order that sorts them, and which of the sorted ones differ from the one before.

    NaN comes last; or, if it is `incomparable`, it says nothing about the order of two rows, as in PyTorch, and the next column decides."""
    xp = arrays.module_of(rows)
    keys = unhalved(rows)
    if incomparable and type(keys) is np.ndarray and keys.dtype.kind == "f" and np.isnan(keys).any():
        listed = keys.tolist()
        order = np.array(sorted(range(len(listed)), key=cmp_to_key(lambda i, j: _compared(listed[i], listed[j]))), np.int64)
        return order, changes(keys[order])
    order = xp.lexsort(keys.T[::-1]) if keys.shape[1] != 1 else argsort(keys[:, 0], 0, False)
    return order, changes(keys[order])


def _compared(first: list, second: list) -> int:
    """-1, 0 or 1: which row comes first, by the first column of which one element is less."""
    return next((-1 if a < b else 1 for a, b in zip(first, second, strict=True) if a < b or a > b), 0)


def changes(rows: Array) -> Array:
    """Which of the rows (N, C) differ from the one before; the first does."""
    xp = arrays.module_of(rows)
    differs = xp.ones(rows.shape[0], np.bool_)
    differs[1:] = (rows[1:] != rows[:-1]).any(axis=1)
    return differs


def search(boundaries: Array, values: Array, right: bool) -> Array:
    """Where `values` (..., V) would go into the sorted `boundaries` (..., B): before equals, or after them if `right`."""
    keys, wanted = unhalved(boundaries), unhalved(values)
    found = _searched(keys, wanted, right)
    if found is not None:
        return found
    if type(keys) is not np.ndarray and keys.ndim == 1:
        return arrays.module_of(keys).searchsorted(keys, wanted, side="right" if right else "left")
    return _bisected(keys, wanted, right)


def _bisected(keys: Array, wanted: Array, right: bool) -> Array:
    """All searches at once, halving what is left to each; the steps are those of the compiled loop."""
    xp, n = arrays.module_of(keys), keys.shape[-1]
    start, left = xp.zeros(wanted.shape, np.int64), xp.full(wanted.shape, n, np.int64)
    for _ in range(n.bit_length()):
        half = left >> 1
        middle = start + half
        at = xp.minimum(middle, n - 1)
        here = keys[at] if keys.ndim == 1 else xp.take_along_axis(keys, at, -1)
        on = (left > 0) & ~(here > wanted if right else here >= wanted)
        start, left = xp.where(on, middle + 1, start), xp.where(on, left - half - 1, half)
    return start


def _searched(keys: Array, wanted: Array, right: bool) -> Array | None:
    """What the compiled loop finds (see counting_loops.py), or None."""
    n, loop = keys.shape[-1], native.kernel("sorted.search")
    if type(keys) is not np.ndarray or loop is native.not_compiled or not n or not wanted.size:
        return None
    keys, wanted = arrays.contiguous(keys), arrays.contiguous(wanted)
    rows = keys.size // n  # all look in one sequence, or each row in its own
    out = native.empty(wanted.shape, np.dtype(np.int64))
    shape = (rows, wanted.size // rows)
    seen = native.strided_view(keys, shape, (n, 0), 0), wanted.reshape(shape)
    return None if loop.into(out.reshape(shape), *seen, n.bit_length() + 1, n, right) is NotImplemented else out


def take(array: Array, indices: Array, dim: int) -> Array:
    """The elements at `indices` along `dim`."""
    if array.ndim == 1:  # NumPy's general form costs ten times as much as indexing does
        return array[indices]
    return arrays.module_of(array).take_along_axis(array, indices, dim)


def _part(array: Array, dim: int, start: int, length: int | None) -> Array:
    """`length` elements from `start` on along `dim`; a negative length leaves out as many at the end."""
    stop = None if length is None else start + length if length >= 0 else length
    return array[(slice(None),) * dim + (slice(start, stop),)]


def _like(array: Array, found: Array) -> Array:
    """`found` in the memory order of `array`."""
    out = arrays.empty_like(array, found.dtype)
    arrays.write(out, found)
    return out
