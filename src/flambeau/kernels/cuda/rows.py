"""Running folds and loops over rows on a GPU: how many threads share a row, and whether a row is cut into parts that are merged afterwards.

`fold` and `rows` take what the compiled loops of the CPU take (see `folding.py`), and answer False where there is no kernel.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from flambeau import dtypes
from flambeau.kernels.cuda.launch import compiled, empty, multiprocessors, where_it_is
from flambeau.kernels.cuda.print_rows import FoldInstance, print_fold
from flambeau.kernels.language.print_cuda import THREADS
from flambeau.kernels.loops.cuda import Instance, print_loop, print_parts
from flambeau.kernels.loops.language import EACH, ROW, Loop
from flambeau.kernels.reductions.fold import FOLDS

ENOUGH = 16  # a thread that has fewer elements than this to itself is not worth starting
IN_REGISTERS = 64  # elements of rows that a thread may keep
MOST_ADDED = 64  # rows of a total that are added up before the sum is widened
_FOLDS = {f.name: f for f in FOLDS}


@where_it_is(1)
def fold(name: str, array, sizes, steps, out, shift, count: float, index=None) -> bool:
    """Reduce the middle of (outer, n, inner) into `out`, and positions into `index`, where these are given. Steps are in bytes."""
    declared = _FOLDS.get(name)
    dtype = dtypes.OF_NUMPY[array.dtype].name
    if declared is None or dtype not in declared.dtypes or (index is not None and not declared.find):
        return False
    if out is not None and dtypes.OF_NUMPY[out.dtype].name != (dtype if declared.out == "T" else declared.out):
        return False
    outer, n, inner = sizes
    rows = outer * inner
    if not rows:
        return True
    pointer, device = array.data.ptr, array.data.device_id
    aligned = pointer % 16 == 0 and steps[0] % 16 == 0 and inner == 1 and steps[1] == array.itemsize
    columns, lanes, pack, splits, chunk = _shape_of_fold(
        rows, n, steps[1], steps[2], inner, array.itemsize, aligned, multiprocessors(device)
    )
    find = index is not None
    pointers = [0 if a is None else a.data.ptr for a in (out, index)]
    shifts = 0 if shift is None else shift.data.ptr
    tail = (float(count), rows, n, inner, *steps, chunk)
    grid = ((rows * lanes + THREADS - 1) // THREADS, splits)
    if splits == 1:
        kernel = _fold_kernel(name, dtype, lanes, columns, "whole", pack, find, device)
        kernel(grid, (THREADS,), (*pointers, pointer, shifts, 0, *tail))
        return True
    parts = empty((splits * rows * (2 if find else 1),), np.dtype(np.float64))
    kernel = _fold_kernel(name, dtype, lanes, columns, "part", pack, find, device)
    kernel(grid, (THREADS,), (*pointers, pointer, shifts, parts.data.ptr, *tail))
    lanes = 8 if rows >= 32 else THREADS
    kernel = _fold_kernel(name, dtype, lanes, True, "merge", 1, find, device)
    tail = (float(count), rows, splits, 1, 0, 0, 0, splits)
    kernel(((rows * lanes + THREADS - 1) // THREADS,), (THREADS,), (*pointers, 0, shifts, parts.data.ptr, *tail))
    return True


@lru_cache(1024)
def _shape_of_fold(rows: int, n: int, step: int, inner_step: int, inner: int, size: int, aligned: bool, processors: int):
    """(columns, lanes, pack, splits, chunk): see FoldInstance; `splits` parts of `chunk` elements each."""
    columns = inner > 1 and inner_step < step
    pack = 16 // size
    if columns:
        pack, lanes = 1, 1 if n < 8 else 8
    else:
        pack = pack if aligned and n % pack == 0 else 1
        units = n // pack
        lanes = 1 if units <= 2 else 4 if units <= 16 else 32 if units <= 512 else THREADS
    blocks = (rows * lanes + THREADS - 1) // THREADS
    most = max(n // (lanes * pack * ENOUGH), 1)
    splits = min(max(4 * processors // blocks, 1), most, 65535)
    unit = lanes * pack
    chunk = -(-n // (splits * unit)) * unit if splits > 1 else max(n, 1)
    return columns, lanes, pack, -(-n // chunk) if n else 1, chunk


@where_it_is(3)
def rows(loop: Loop, count: int, n: int, given, options) -> bool:
    """Run a loop on `count` rows of `n` elements: `given` are the first store, the operands and the other stores, all contiguous."""
    out, operands, more = given[0], given[1 : 1 + len(loop.loads)], given[1 + len(loop.loads) :]
    dtype = dtypes.OF_NUMPY[out.dtype].name
    if dtype not in loop.dtypes:
        return False
    stores, pointers = [a.data.ptr for a in (out, *more)], [a.data.ptr for a in operands]
    along = [p for p, access in zip((*stores, *pointers), (*loop.stores, *loop.loads), strict=True) if access != EACH]
    pack = _pack(n, out.itemsize, along)
    lanes, items = _shape_of_rows(n // pack, pack, loop.loads.count(ROW))
    kernel = _rows_kernel(loop, dtype, lanes, pack, items, out.data.device_id)
    kernel(((count * lanes + THREADS - 1) // THREADS,), (THREADS,), (*stores, *pointers, *map(float, options), count, n))
    return True


@where_it_is(1)
def rows_and_totals(loop: Loop, given, options) -> tuple | None:
    """Run a loop with totals on the operands it is `given`, all contiguous: (result, totals (n,)...); None where there is no kernel for rows of that
    length."""
    x = given[0]
    dtype, n = dtypes.OF_NUMPY[x.dtype].name, x.shape[-1]
    if dtype not in loop.dtypes:
        return None
    device, count, pointers = x.data.device_id, x.size // n, [a.data.ptr for a in given]
    pack = _pack(n, x.itemsize, [p for p, access in zip(pointers, loop.loads, strict=True) if access != EACH])
    lanes, items = _shape_of_rows(n // pack, pack, loop.loads.count(ROW) + len(loop.totals))
    if not items:
        return None
    out = empty(x.shape, x.dtype)
    totals = [empty((n,), x.dtype) for _ in loop.totals]
    groups = THREADS // lanes
    # Enough blocks for the GPU, and few enough rows for each to be added up in the dtype they are computed in.
    blocks = max(min(-(-count // groups), 2 * multiprocessors(device)), -(-count // (groups * MOST_ADDED)))
    parts = empty((len(totals), blocks, n), x.dtype)
    begins = [parts.data.ptr + i * blocks * n * x.itemsize for i in range(len(totals))]
    kernel = _rows_kernel(loop, dtype, lanes, pack, items, device)
    kernel((blocks,), (THREADS,), (out.data.ptr, *begins, *pointers, *map(float, options), count, n))
    ends = [t.data.ptr for t in totals]
    finish = _parts_kernel(dtype, device)
    finish((-(-n // 32), len(totals)), (THREADS,), (ends[0], ends[-1], parts.data.ptr, blocks, n))
    return out, *totals


def _pack(n: int, size: int, pointers: list[int]) -> int:
    """How many elements of rows of n that begin there are read at once: 16 bytes, if every row is a whole number of such packs."""
    pack = min(16 // size, 8)
    return 1 if n % pack or any([p % 16 for p in pointers]) else pack


@lru_cache(1024)
def _shape_of_rows(units: int, pack: int, operands: int) -> tuple[int, int]:
    """(lanes, items): a warp for a short row, a block for a long one, and registers for what fits."""
    lanes = 32 if units <= 256 else THREADS
    items = 1
    while items * lanes < units:
        items *= 2
    return lanes, items if items * pack * operands <= IN_REGISTERS else 0


# -- kernels -----------------------------------------------------------------------------------------------------------------


@lru_cache(None)
def _fold_kernel(name: str, dtype: str, lanes: int, columns: bool, part: str, pack: int, find: bool, device: int):
    instance = FoldInstance(_FOLDS[name], dtype, lanes, columns, part, pack, find)
    return compiled(print_fold, instance.function, device, instance)


@lru_cache(None)
def _rows_kernel(loop: Loop, dtype: str, lanes: int, pack: int, items: int, device: int):
    instance = Instance(loop, dtype, lanes, pack, items)
    return compiled(print_loop, instance.function, device, instance)


@lru_cache(None)
def _parts_kernel(dtype: str, device: int):
    return compiled(print_parts, f"fl_parts_{dtype}", device, f"fl_parts_{dtype}", dtype)
