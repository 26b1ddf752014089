"""Borders: an array with more, or fewer, elements on the sides of some dimensions.

    constant   a number       reflect   a mirror image       replicate   the edge       circular   the other side

Each padded dimension has a table of the positions its elements come from, -1 for the number. The compiled loop (index.pad) makes the result row by
row: the middle of a row in one piece, its sides by the table of the last dimension, where the row comes from by the tables of the others.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from flambeau.kernels import arrays
from flambeau.kernels.arrays import Array
from flambeau.kernels.native import native

Pairs = tuple[tuple[int, int], ...]  # (before, after) of every dimension; negative: cut off


def bordered(x: Array, pairs: Pairs, mode: str, value: complex = 0) -> Array:
    """The array with its borders: fresh and row-major. `value`, of the array's dtype, is that of mode "constant"."""
    plan = _plan(x.shape, pairs, mode)
    loop = native.kernel("index.pad")
    if type(x) is np.ndarray and loop is not native.not_compiled and x.size and prod(plan.shape):
        x = x if x.flags.c_contiguous else arrays.contiguous(x)
        out, view = native.empty(plan.shape, x.dtype), native.strided_view
        number = native.empty((), x.dtype)
        number[...] = value
        there = view(out, (plan.planes, len(plan.rows)), (len(plan.rows) * plan.width, plan.width), 0)
        numbers = plan.width, x.itemsize * plan.length, plan.start, plan.middle, plan.skip, plan.width - plan.middle
        if (
            loop.into(there, view(x, (plan.planes, 1), (x.size // plan.planes, 0), 0), plan.rows, plan.sides, number, *numbers)
            is not NotImplemented
        ):
            return out
    xp = arrays.module_of(x)
    if not x.size or not prod(plan.shape):  # nothing but border, or nothing at all
        x = arrays.zeros(plan.shape, x.dtype, arrays.device_of(x))
        x[...] = value
        return x
    for d, places in plan.tables:
        constant = places.min(initial=0) < 0
        x = xp.take(x, xp.asarray(np.maximum(places, 0)), axis=d)
        if constant:
            x[(slice(None),) * d + (xp.asarray(places < 0),)] = value
    return arrays.contiguous_copy(x)


def ready(x: np.ndarray, pairs: Pairs, value: complex):
    """What `bordered` does with row-major arrays like this one and a number, as a function of them; or None."""
    plan, loop = _plan(x.shape, pairs, "constant"), native.kernel("index.pad")
    if loop is native.not_compiled or not x.size or not prod(plan.shape) or not x.flags.c_contiguous:
        return None
    number, dtype, into, empty, view = native.empty((), x.dtype), x.dtype, loop.into, native.empty, native.strided_view
    number[...] = value
    lines, steps, apart = (plan.planes, len(plan.rows)), (len(plan.rows) * plan.width, plan.width), x.size // plan.planes
    numbers = plan.width, x.itemsize * plan.length, plan.start, plan.middle, plan.skip, plan.width - plan.middle

    def run(x):
        out = empty(plan.shape, dtype)
        there, here = view(out, lines, steps, 0), view(x, (plan.planes, 1), (apart, 0), 0)
        done = into(there, here, plan.rows, plan.sides, number, *numbers)
        return done if done is NotImplemented else out

    return run


class _Plan(NamedTuple):
    shape: tuple[int, ...]  # of the result
    planes: int  # how many times the pattern of rows repeats
    rows: np.ndarray  # of a plane of the result: which row of the input's plane each is
    sides: np.ndarray  # where the elements of a row before and after its middle come from; 0-d, the first of them
    width: int  # of a row of the result
    length: int  # of a row of the input
    start: int  # where the middle of the input's row goes
    middle: int  # how many elements that is
    skip: int  # where the middle begins in the row of the input
    tables: list[tuple[int, np.ndarray]]  # of the padded dimensions


@lru_cache(256)
def _plan(sizes: tuple[int, ...], pairs: Pairs, mode: str) -> _Plan:
    tables = [(d, places(n, *pair, mode)) for d, (n, pair) in enumerate(zip(sizes, pairs, strict=True)) if pair != (0, 0)]
    shape = tuple(n + sum(pair) for n, pair in zip(sizes, pairs, strict=True))
    if not tables:
        tables = [(len(sizes) - 1, np.arange(sizes[-1]))] if sizes else []
        if not sizes:
            return _Plan(shape, 1, np.zeros(1, np.int64), np.zeros((), np.int64), 1, 1, 0, 1, 0, [])
    first, last = tables[0][0], tables[-1][0]
    rows = np.zeros((), np.int64)
    for d in range(first, last):
        table = dict(tables).get(d, np.arange(sizes[d]))
        rows = np.where((rows[..., None] < 0) | (table < 0), -1, rows[..., None] * sizes[d] + table)
    inner, (before, after) = prod(sizes[last + 1 :]), pairs[last]
    start, stop = max(before, 0), shape[last] - max(after, 0)
    start, stop = (start, stop) if stop > start else (0, 0)
    table = tables[-1][1]
    sides = np.concatenate([table[:start], table[stop:]])[:, None]
    sides = np.where(sides < 0, -1, sides * inner + np.arange(inner)).reshape(-1)
    head = sides[:1].reshape(()) if sides.size else np.zeros((), np.int64)
    numbers = shape[last] * inner, sizes[last] * inner, start * inner, (stop - start) * inner, max(-before, 0) * inner
    return _Plan(shape, prod(sizes[:first]), rows.reshape(-1), head, *numbers, tables)


def places(n: int, before: int, after: int, mode: str) -> np.ndarray:
    """Where each of before + n + after elements comes from among n, or -1."""
    i = np.arange(-before, n + after)
    if mode == "constant":
        return np.where((i < 0) | (i >= n), -1, i)
    if mode == "reflect":
        return (n - 1) - abs((n - 1) - abs(i))
    if mode == "replicate":
        return np.clip(i, 0, n - 1)
    # The ring is what is left after cutting; in the other modes what is cut off is still continued.
    cut, left = max(-before, 0), n + min(before, 0) + min(after, 0)
    return cut + (i - cut) % left if left else i
