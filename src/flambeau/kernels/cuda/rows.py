"""Running folds and loops over rows on a GPU: how many threads share a row, and whether a row is cut into parts that are joined afterwards.

`fold` takes what the compiled folds of the CPU take (see `folding.py`), and answers False where there is no kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import cupy
import numpy as np

from flambeau import dtypes
from flambeau.kernels.cuda import error_notes
from flambeau.kernels.cuda.launch import compiled, empty, multiprocessors, where_it_is
from flambeau.kernels.language.print_cuda import THREADS
from flambeau.kernels.loops.cuda import Instance, print_loop
from flambeau.kernels.loops.folds import SPREAD, as_loop
from flambeau.kernels.loops.language import EACH, LINE, ROW, SHARED, Loop
from flambeau.kernels.loops.passes import passes
from flambeau.kernels.reductions.fold import FOLDS

ENOUGH = 16  # a thread that has fewer packs than this to itself is not worth starting
IN_REGISTERS = 64  # elements of rows that a thread may keep
MOST_ADDED = 64  # rows of a total that are added up before the sum is widened
FLOAT64 = np.dtype(np.float64)
_FOLDS = {f.name: f for f in FOLDS}


class Rows(NamedTuple):
    """How rows lie in memory, in elements: row r begins at r // inner * apart + r % inner * beside, and its elements are `step` apart. If they are
    cut into lines of some `length`, of which each is a stretch of memory, one begins `line` after the other; of loads of a number for each line,
    `numbers` says how far to go for the next r // inner, the next r % inner, the next line."""

    rows: int
    n: int
    inner: int
    apart: int
    beside: int
    step: int
    length: int = 0
    line: int = 0
    numbers: tuple[int, ...] = ()


@where_it_is(1)
def fold(name: str, array, sizes, steps, out, shift, count: float, index=None) -> bool:
    """Reduce the middle of (outer, n, inner) into `out`, and positions into `index`, where these are given. Steps are in bytes."""
    declared = _FOLDS.get(name)
    dtype = dtypes.OF_NUMPY[array.dtype].name
    if declared is None or dtype not in declared.dtypes or (index is not None and not declared.find):
        return False
    if dtypes.OF_NUMPY[out.dtype].name != (dtype if declared.out == "T" else declared.out):
        return False
    loop = as_loop(declared, index is not None)
    if len(loop.loads) > 1 and shift is None:
        shift = cupy.zeros((), np.float64)
    loads = (array,) if len(loop.loads) == 1 else (array, shift)
    stores = (out,) if index is None else (out, index)
    run_loop(loop, stores, loads, (float(count),), _middle(array, sizes, steps))
    return True


@where_it_is(1)
def spread(name: str, array, sizes, steps, found: Sequence, count: float) -> None:
    """What `found` is to hold of the middle of (outer, n, inner): "var" or "std" by this count, and the mean."""
    run_loop(SPREAD[name], found, (array,), (count,), _middle(array, sizes, steps))


def _middle(array, sizes, steps) -> Rows:
    outer, n, inner = sizes
    apart, step, beside = (s // array.itemsize for s in steps)
    return Rows(outer * inner, n, inner, apart, beside, step)


@where_it_is(1)
def run_loop(loop: Loop, stores: Sequence, loads: Sequence, options: Sequence[float], lie: Rows) -> None:
    """Run a loop on rows: all that lie along them lie alike; of the others there is one number for each, contiguous, or one for all."""
    if not lie.rows:
        return
    along = [a for a, access in zip((*stores, *loads), (*loop.stores, *loop.loads), strict=True) if access == ROW]
    packed = along + [a for a, access in zip(loads, loop.loads, strict=True) if access == SHARED]
    size, aligned = max([a.itemsize for a in along]), not any([a.data.ptr % 16 for a in packed])
    rooms, kernels, last = plan(loop, lie, along[0].dtype, size, aligned, stores[0].data.device_id)
    parts = [empty((room,), FLOAT64) for room in rooms]
    notes = () if loop.error is None else (error_notes.page(stores[0].data.device_id),)
    one = (EACH,) if lie.length else (EACH, LINE)
    each = [int(a.size > 1) for a, access in zip(loads, loop.loads, strict=True) if access in one]
    told = (*stores, *loads, *map(float, options), *parts, *notes, *each, *last)
    for kernel, grid in kernels:
        kernel(grid, (THREADS,), told)
    if notes:
        error_notes.launched()


@lru_cache(2048)
def plan(loop: Loop, lie: Rows, dtype: np.dtype, size: int, aligned: bool, device: int) -> tuple:
    """(numbers that each kind of part takes, (kernel, grid) of each launch, what kernels are told last: how rows lie and are cut)."""
    way = schedule(loop, lie, size, aligned, multiprocessors(device))
    rooms = [fields * way.splits * lie.rows for fields in way.parts]
    kernels = [(kernel_of(instance, device), grid) for instance, grid in launches(loop, dtypes.OF_NUMPY[dtype].name, lie, way)]
    numbers = lie.numbers if LINE in loop.loads and lie.length else ()
    return rooms, kernels, (*numbers, *lie[:6], way.chunk, way.splits, *(lie[6:8] if lie.length else ()))


class Way(NamedTuple):
    """A schedule: see `Instance`. Rows are cut into `splits` parts of `chunk` places; `parts` are the fields of what each pass finds of a part."""

    lanes: int
    pack: int
    items: int
    columns: bool
    chunk: int
    splits: int
    parts: tuple[int, ...]


def schedule(loop: Loop, lie: Rows, size: int, aligned: bool, processors: int) -> Way:
    """How rows that lie so are shared by threads."""
    count, n, inner, apart, beside, step, *lines, _ = lie
    columns, most = not lines[0] and inner > 1 and beside < step, max(min(16 // size, 8), 1)
    walks = len(passes(loop, room=0, puts=False).reducing) + any([access != EACH for access in loop.stores])
    if not walks:
        return Way(1, 1, 0, columns, max(n, 1), 1, ())
    operands = loop.loads.count(ROW)
    if columns:
        pack = most if aligned and beside == 1 and not any([s % most for s in (inner, apart, step)]) else 1
        while pack > 1 and count // pack < 8:
            pack //= 2
        units, lanes = n, 1 if n < 8 else 8
        while n >= 4 * lanes and lanes < THREADS // 4 and count // pack <= THREADS // (2 * lanes):
            lanes *= 2
    else:
        pack = most if aligned and step == 1 and not any([s % most for s in (n, apart, beside, *lines)]) else 1
        units = n // pack
        lanes = _sharing(units) if walks > 1 else _reading(units)
    items = -(-units // lanes) if walks > 1 else 0
    items = items if items * pack * operands <= IN_REGISTERS else 0
    blocks = -(-count // (THREADS // lanes * (pack if columns else 1)))
    splits = 1 if items else max(min(4 * processors // blocks, n // (lanes * (1 if columns else pack) * ENOUGH), 65535), 1)
    unit = lanes * (1 if columns else pack)
    chunk = -(-n // (splits * unit)) * unit if splits > 1 else max(n, 1)
    splits = -(-n // chunk) if n else 1
    steps = passes(loop, room=0, puts=False, at_once=True).reducing if splits > 1 else ()
    return Way(lanes, pack, items, columns, chunk, splits, tuple([sum(1 + r.placed for r in s.reductions) for s in steps]))


def _reading(units: int) -> int:
    """Threads for a row of so many packs that is read once, a few packs at a time."""
    return THREADS if units > 512 else 1 if units <= 2 else 4 if units <= 16 else 32


def _sharing(units: int) -> int:
    """Threads for a row of so many packs that they keep: neighbours, of one warp if that will do."""
    lanes = 1
    while lanes < units and (lanes < 32 or 4 * lanes < units) and lanes < THREADS:
        lanes *= 2
    return lanes


def launches(loop: Loop, dtype: str, lie: Rows, way: Way) -> list[tuple[Instance, tuple[int, ...]]]:
    """(kernel, grid) of each launch."""
    across = THREADS // way.lanes * (way.pack if way.columns else 1)
    stages = (None,) if way.splits == 1 else range(len(way.parts) + 1)
    kernels = [Instance(loop, dtype, way.lanes, way.pack, way.items, way.columns, stage, lines=lie.length > 0) for stage in stages]
    found: list[tuple[Instance, tuple[int, ...]]] = [(kernel, (-(-lie.rows // across), way.splits)) for kernel in kernels]
    if way.splits > 1 and ROW not in loop.stores:
        found[-1] = joining(loop, dtype, lie.rows, len(way.parts))
    return found


def joining(loop: Loop, dtype: str, count: int, stage: int) -> tuple[Instance, tuple[int]]:
    """(kernel, grid) of the last launch where there is nothing more to be done than to join what was found of the parts of so many rows."""
    many = count >= 32
    lanes = 8 if many else THREADS
    return Instance(loop, dtype, lanes, columns=many, stage=stage), (-(-count * lanes // THREADS),)


@where_it_is(1)
def rows_and_totals(loop: Loop, given, options) -> tuple | None:
    """Run a loop with totals on the operands it is `given`, all contiguous: (result, totals (n,)...); None where there is no kernel for rows of that
    length."""
    x = given[0]
    dtype, n, size = dtypes.OF_NUMPY[x.dtype].name, x.shape[-1], x.itemsize
    device, count, pointers = x.data.device_id, x.size // n, [a.data.ptr for a in given]
    pack = min(16 // size, 8)
    pack = 1 if n % pack or any([p % 16 for p, access in zip(pointers, loop.loads, strict=True) if access != EACH]) else pack
    lanes = max(_sharing(n // pack), 32)
    items = -(-n // (pack * lanes))
    if items * pack * (loop.loads.count(ROW) + len(loop.totals)) > IN_REGISTERS:
        return None
    groups, out = THREADS // lanes, empty(x.shape, x.dtype)
    # Enough blocks for the GPU, and few enough rows for each to be added up in the dtype they are computed in.
    blocks = max(min(-(-count // groups), 2 * multiprocessors(device)), -(-count // (groups * MOST_ADDED)))
    parts = empty((len(loop.totals), blocks, n), x.dtype)
    begins = [parts.data.ptr + i * blocks * n * size for i in range(len(parts))]
    each = [int(a.size > 1) for a, access in zip(given, loop.loads, strict=True) if access == EACH]
    kernel = kernel_of(Instance(loop, dtype, lanes, pack, items), device)
    tail = (*map(float, options), *each, count, n, 1, n, 0, 1, n, 1)
    kernel((blocks,), (THREADS,), (out.data.ptr, *begins, *pointers, *tail))
    totals = empty((len(loop.totals), n), x.dtype)
    fold("sum", parts, (len(parts), blocks, n), (blocks * n * size, n * size, size), totals, None, 1.0)
    return out, *totals


@lru_cache(None)
def kernel_of(instance: Instance, device: int):
    """The compiled kernel."""
    return compiled(print_loop, instance.function, device, instance)
