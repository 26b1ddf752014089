"""Running loops over channels, (N, C, *): the elements of a channel are a row, as are those of a group of channels of one sample.

    run(loop, (x, weight, bias), (eps,), groups)      the stores, one array or a tuple

`groups` 0: a row is a channel of the whole batch, and what it has of each sample is a line. Else a row is one of so many groups of channels of a
sample, and each of its channels is a line. "ri" operands are (N, C, *), and results lie as the last of them; "r" ones have a number for each row, (C,) or (N, groups), or as
many as repeat to that; "rj" ones are (C,). Stores likewise, but "rj" ones are (N, C): a number for each line.

Rows that are lines of memory go one by one (`lines.py`), and channels that lie side by side as columns (`columns.py`). A row belongs to one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from flambeau.kernels import arrays, layout
from flambeau.kernels.arrays import Array
from flambeau.kernels.loops.evaluate import evaluate
from flambeau.kernels.loops.language import EACH, LINE, ROW, Loop
from flambeau.kernels.loops.run import compiled
from flambeau.kernels.native import native

Sizes = tuple[int, ...]
FEW, LARGE = 4, 1 << 17  # channels; elements of all of them
NARROW, WIDE, MANY = 16, 64, 512  # columns that a block has; so many channels have wide ones


def run(loop: Loop, operands: Sequence[Array], options: Sequence[float] = (), groups: int = 0, **more: Any):
    """The stores of the loop. `more` is what a kernel of a GPU may do beside."""
    x = _pattern(loop, operands)
    if type(x) is np.ndarray:
        found = _compiled(loop, x, operands, options, groups) if native.lib is not None and x.size else None
    else:
        found = arrays.cuda_room.norm.run(loop.name, operands, options, groups, **more) if arrays.on_gpu(x) else None
    return _by_numpy(loop, x, operands, options, groups) if found is None or found is NotImplemented else found


def ready(loop: Loop, operands: Sequence[np.ndarray], options: Sequence[float] = (), groups: int = 0) -> Callable | None:
    """What `run` does with arrays like these, as a function of them; None where there is more to it than a launch."""
    x = _pattern(loop, operands)
    fits = native.lib is not None and x.size and all(map(_lies, [x] * len(operands), operands, loop.loads))
    way = _way(loop, x.shape, x.strides, x.dtype, groups, tuple([a.shape for a in operands])) if fits else None
    return None if way is None or len(way.launches) > 1 else partial(_carried_out, way, tuple(map(float, options)))


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


class Way(NamedTuple):
    """How a loop is launched: `stores` are shapes, strides (or None for dense ones) and dtypes, `steps` those of the first store, the operands and the
    other stores."""

    into: Callable
    stores: tuple[tuple, ...]
    steps: tuple[tuple[int, ...], ...]
    launches: tuple


def _pattern(loop: Loop, operands: Sequence[Array]) -> Array:
    """The operand that says how results lie."""
    return next(a for a, access in zip(operands[::-1], loop.loads[::-1], strict=True) if access == ROW)


def _lies(x: np.ndarray, a: np.ndarray, access: str) -> bool:
    """Whether an operand lies as loops read it."""
    return a.dtype == x.dtype and (a.strides == x.strides if access == ROW else a.flags.c_contiguous)


def _compiled(loop: Loop, x: np.ndarray, operands: Sequence[np.ndarray], options: Sequence[float], groups: int):
    if any([a.dtype != x.dtype for a in operands]):
        return None
    way = _way(loop, x.shape, x.strides, x.dtype, groups, tuple([a.shape for a in operands]))
    if way is None:
        return None
    given = []
    for a, access in zip(operands, loop.loads, strict=True):
        lies = _lies(x, a, access)
        given.append(a if lies else like(x) if access == ROW else arrays.contiguous(a))
        if not lies and access == ROW:
            arrays.write(given[-1], a)
    return _carried_out(way, options, *given)


def _carried_out(way: Way, options: Sequence[float], *operands: np.ndarray):
    view, steps = native.strided_view, way.steps
    stores = [
        native.empty(shape, dtype) if strides is None else native.empty_strided(shape, strides, dtype)
        for shape, strides, dtype in way.stores
    ]
    used = (stores[0], *operands, *stores[1:])
    for count, offset, numbers in way.launches:
        if way.into(*[view(a, count, step, offset) for a, step in zip(used, steps, strict=True)], *numbers, *options) is NotImplemented:
            return NotImplemented
    return tuple(stores) if len(stores) > 1 else stores[0]


@lru_cache(1024)
def _way(loop: Loop, shape: Sizes, strides: Sizes, dtype: np.dtype, groups: int, given: tuple[Sizes, ...]) -> Way | None:
    """The way for operands of the shapes `given`; None where rows do not lie so, or nothing is compiled."""
    rows = _rows(shape, strides, dtype.itemsize, groups)
    into = None if rows is None else getattr(compiled(rows.schedule, loop), "into", None)
    if rows is None or into is None:
        return None
    here = tuple([s // dtype.itemsize for s in strides])
    here = None if here == layout.contiguous_strides(shape) else here
    kinds = {ROW: (shape, here, dtype), EACH: (rows.shape, None, dtype), LINE: (shape[:2], None, dtype)}
    steps = {ROW: rows.steps, LINE: rows.of_weights}
    read = [_repeated(of, rows) if access == EACH else steps[access] for of, access in zip(given, loop.loads, strict=True)]
    steps |= {LINE: rows.of_lines, EACH: _repeated(rows.shape, rows)}
    first, *others = [steps[access] for access in loop.stores]
    return Way(into, tuple([kinds[access] for access in loop.stores]), (first, *read, *others), rows.launches)


def _repeated(shape: Sizes, rows: Rows) -> Sizes:
    """The steps from row to row of numbers, which may repeat; of columns the next block has the next ones."""
    if rows.schedule == "columns":
        return rows.steps
    shape = (1,) * (len(rows.shape) - len(shape)) + shape
    return tuple([0 if n == 1 else step for n, step in zip(shape, layout.contiguous_strides(shape), strict=True)])


@lru_cache(1024)
def _rows(shape: Sizes, strides: Sizes, itemsize: int, groups: int) -> Rows | None:
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
