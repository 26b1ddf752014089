"""Running loops over channels, (N, C, *): the elements of a channel are a row, as are those of a group of channels of one sample.

    run(loop, (x, weight, bias), (eps,), groups)      the stores, one array or a tuple

`groups` 0: a row is a channel of the whole batch, and what it has of each sample is a line. Else a row is one of so many groups of channels of a
sample, and each of its channels is a line. "ri" operands are (N, C, *), and results lie as the last of them; "r" ones have a number for each row, (C,) or (N, groups), or as
many as repeat to that; "rj" ones are (C,). Stores likewise, but "rj" ones are (N, C): a number for each line.

Rows that are lines of memory go one by one (`lines.py`), and channels that lie side by side as columns (`columns.py`). A row belongs to one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from flambeau.kernels import arrays, layout
from flambeau.kernels.arrays import Array
from flambeau.kernels.loops.evaluate import evaluate
from flambeau.kernels.loops.language import EACH, LINE, ROW, Loop
from flambeau.kernels.loops.run import compiled
from flambeau.kernels.native import native

FEW, LARGE = 4, 1 << 17  # channels; elements of all of them
NARROW, WIDE, MANY = 16, 64, 512  # columns that a block has; so many channels have wide ones


def run(loop: Loop, operands: Sequence[Array], options: Sequence[float] = (), groups: int = 0, **more: Any):
    """The stores of the loop. `more` is what a kernel of a GPU may do beside."""
    x = next(a for a, access in zip(operands[::-1], loop.loads[::-1], strict=True) if access == ROW)
    if type(x) is np.ndarray:
        found = _compiled(loop, x, operands, options, groups) if native.lib is not None and x.size else None
    else:
        found = arrays.cuda_room.norm.run(loop.name, operands, options, groups, **more) if arrays.on_gpu(x) else None
    return _by_numpy(loop, x, operands, options, groups) if found is None else found


class Rows(NamedTuple):
    """How rows lie. Steps from row to row are in elements: of "ri" operands, of "rj" ones that are read, and of those that are written.

    launches    of each: the number of rows, or of blocks of them, an offset, and the loop's first numbers
    """

    schedule: str
    shape: tuple[int, ...]
    steps: tuple[int, ...]
    of_weights: tuple[int, ...]
    of_lines: tuple[int, ...]
    launches: tuple[tuple[tuple[int, ...], int, tuple[int, ...]], ...]


def _compiled(loop: Loop, x: np.ndarray, operands: Sequence[np.ndarray], options: Sequence[float], groups: int):
    rows = _rows(x.shape, x.strides, x.itemsize, groups)
    if rows is None:
        return None
    steps, dtype, shape = {ROW: rows.steps, LINE: rows.of_weights}, x.dtype, rows.shape
    used = []
    for a, access in zip(operands, loop.loads, strict=True):
        if a.dtype != dtype:
            return None
        if access == ROW and a.strides != x.strides:
            given, a = a, like(x)
            arrays.write(a, given)
        elif access != ROW and not a.flags.c_contiguous:
            a = arrays.contiguous(a)
        used.append((a, steps[access] if access != EACH else _repeated(a.shape, rows)))
    made = [
        (native.empty((x.shape[:2] if access == LINE else shape), dtype), access) if access != ROW else (like(x), ROW)
        for access in loop.stores
    ]
    steps |= {LINE: rows.of_lines, EACH: _repeated(shape, rows)}
    stores = [(a, steps[access]) for a, access in made]
    kernel, view = compiled(rows.schedule, loop), native.strided_view
    if kernel is native.not_compiled:
        return None
    for count, offset, numbers in rows.launches:
        seen = [view(a, count, step, offset) for a, step in (stores[0], *used, *stores[1:])]
        if kernel.into(*seen, *numbers, *options) is NotImplemented:
            return None
    return made[0][0] if len(made) == 1 else tuple([a for a, _ in made])


@lru_cache(1024)
def _repeated(shape: tuple[int, ...], rows: Rows) -> tuple[int, ...]:
    """The steps from row to row of numbers, which may repeat; of columns the next block has the next ones."""
    if rows.schedule == "columns":
        return rows.steps
    shape = (1,) * (len(rows.shape) - len(shape)) + shape
    return tuple([0 if n == 1 else step for n, step in zip(shape, layout.contiguous_strides(shape), strict=True)])


@lru_cache(1024)
def _rows(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, groups: int) -> Rows | None:
    """How rows lie; None where their lines are not dense."""
    samples, channels, *places = shape
    strides, length = tuple([s // itemsize for s in strides]), prod(places)
    dense = layout.is_contiguous(shape, strides)
    if groups and dense:
        each = channels // groups
        numbers = each * length, each, length, length, 1
        steps, of_lines = (channels * length, each * length), (channels, each)
        return Rows("lines", (samples, groups), steps, (0, each), of_lines, (((samples, groups), 0, numbers),))
    if not groups and dense and length > 1:
        numbers = samples * length, samples, channels * length, length, 0
        return Rows("lines", (channels,), (length,), (1,), (1,), (((channels,), 0, numbers),))
    if groups or not layout.is_contiguous((samples, *places, channels), (strides[0], *strides[2:], strides[1])):
        return None
    width, count = WIDE if channels >= MANY else NARROW, samples * length
    blocks = (0, channels // width, width), (channels // width * width, 1, channels % width)
    launches = [((blocks,), first, (count * side, count, channels, side)) for first, blocks, side in blocks if blocks * side]
    return Rows("columns", (channels,), (width,), (width,), (width,), tuple(launches))


def is_plain(x: Array) -> bool:
    """Row-major numbers of a batch, float32 or float64, in main memory or on a GPU."""
    known = type(x) is np.ndarray or arrays.on_gpu(x)
    return known and x.ndim >= 2 and x.size > 0 and x.flags.c_contiguous and x.dtype.char in "fd"


def are_few(x: Array, groups: int) -> bool:
    """Whether channels are so few and large that threads should share them."""
    return not groups and x.shape[1] < FEW and x.size > LARGE and type(x) is np.ndarray and x.flags.c_contiguous


def like(x: Array) -> Array:
    """Fresh memory that lies as x does."""
    return native.empty(x.shape, x.dtype) if type(x) is np.ndarray and x.flags.c_contiguous else arrays.empty_like(x)


def _by_numpy(loop: Loop, x: Array, operands: Sequence[Array], options: Sequence[float], groups: int):
    """Rows of lines as dimensions of their own: (C, N, *) or (N, groups, C / groups, *)."""
    samples, channels = x.shape[:2]
    rows = (samples, groups) if groups else (channels,)
    lines = (1, groups, channels // groups, 1) if groups else (channels, 1, 1)
    given = []
    for a, access in zip(operands, loop.loads, strict=True):
        if access == ROW:
            a = a.reshape(*rows, -1, prod(x.shape[2:])) if groups else a.reshape(samples, channels, -1).swapaxes(0, 1)
        given.append(a if access == ROW else a.reshape(lines if access == LINE else (*(1,) * (len(rows) - a.ndim), *a.shape, 1, 1)))
    stores = []
    for a, access in zip(evaluate(loop, given, options), loop.stores, strict=True):
        if access == ROW:
            stores.append(like(x))
            arrays.write(stores[-1], (a if groups else a.swapaxes(0, 1)).reshape(x.shape))
        else:
            stores.append(arrays.contiguous(a.reshape(rows if access == EACH else x.shape[:2])))
    return stores[0] if len(stores) == 1 else tuple(stores)
