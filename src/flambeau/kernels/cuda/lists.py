"""What is done to all parameters of a model at once on a GPU: steps of optimizers, norms of gradients, making these shorter. As many tensors a launch as
a kernel's parameters have room for addresses of; each is a row of a loop, that blocks share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import cupy
import numpy as np
from cupy.cuda import Device

from flambeau import dtypes
from flambeau.kernels import arrays, layout
from flambeau.kernels.cuda.launch import empty, where_it_is
from flambeau.kernels.cuda.rows import Rows, joining, kernel_of, run_loop
from flambeau.kernels.language import expr as e
from flambeau.kernels.language.print_cuda import THREADS
from flambeau.kernels.loops.cuda import AT_ONCE, Instance
from flambeau.kernels.loops.language import ROW, Loop, greatest, total
from flambeau.kernels.loops.updates import Update, flattened

MOST_BLOCKS = 512  # for one tensor: its threads take several packs then
MOST_PARTS = 128  # of a tensor, where there is something to be found of it
REALS = ("float32", "float64", "float16", "bfloat16")


def _clipped(x, norm, most):
    """Shorter by as much as the norm is too long."""
    by = most / (norm + 1e-6)
    return e.where(by >= 1, x, x * by)


NORMS = {
    1.0: Loop("norm_one", lambda x: total(abs(x)), "ri", "r"),
    2.0: Loop("norm_two", lambda x: e.sqrt(total(x * x)), "ri", "r"),
    float("inf"): Loop("norm_inf", lambda x: greatest(abs(x), 0), "ri", "r"),
}
ADVANCED = Loop("advanced", lambda x: x + 1, "ri", over=(0,))
CLIPPED = Loop("clipped", _clipped, "ri r", "ri", 1, over=(0,))


def update(rule: Update, tensors: Sequence[Sequence], numbers: tuple) -> None:
    """Move tensors of one device and dtype, given by their operands."""
    _move(rule, rule.loop, tensors, [()] * len(tensors), numbers)


def update_reading(rule: Update, tensors: Sequence[Sequence], options: Sequence) -> None:
    """The same by options instead of numbers; those that are lists lie on the GPU, an array of one element for each tensor, and are read there."""
    held = [(i, option) for i, option in enumerate(options) if type(option) is list]
    loop = rule.reading(tuple([(i, f"f{8 * arrays_of[0].itemsize}") for i, arrays_of in held]))
    beside = [tuple([arrays_of[t] for _, arrays_of in held]) for t in range(len(tensors))]
    _move(rule, loop, tensors, beside, [option for option in options if type(option) is not list])


def _move(rule: Update, loop: Loop, tensors: Sequence[Sequence], beside: Sequence[tuple], numbers: Sequence[float]) -> None:
    with Device(tensors[0][0].data.device_id):
        ready = [operands if _lie_alike(operands) else flattened(operands) for operands in tensors]
        dense = [[arrays.contiguous(a) for a in t] if r is None else r for t, r in zip(tensors, ready, strict=True)]
        work = [(*operands, *more) for operands, more in zip(dense, beside, strict=True) if operands[0].size]
        for kernel, grid, given in _launches(loop, [*zip(*work, strict=True)] or [()]):
            kernel(grid, (THREADS,), (*given[:1], *map(float, numbers), *given[1:]))
        for operands, flat, copies in zip(tensors, ready, dense, strict=True):
            for i in rule.written if flat is None else ():
                if copies[i] is not operands[i]:
                    arrays.write(operands[i], copies[i])


@where_it_is(0)
def advance(counters: Sequence) -> None:
    """Add 1 to arrays of one element, of one dtype and device."""
    for kernel, grid, given in _launches(ADVANCED, [counters]):
        kernel(grid, (THREADS,), given)


@where_it_is(0)
def norms(tensors: Sequence, order: float) -> tuple | None:
    """(the norm of each tensor, (n,); the norm of these, ()) for tensors of one device and dtype; None for others, and for other orders."""
    if order not in NORMS or not _are_alike(tensors) or (order == float("inf") and not all([a.size for a in tensors])):
        return None  # nothing has no maximum: whoever goes on says so
    loop, first, count = NORMS[order], tensors[0], len(tensors)
    dense = [a if _is_dense(a) else arrays.contiguous(a) for a in tensors]
    parts, found, whole = empty((count * MOST_PARTS,), np.dtype(np.float64)), empty((count,), first.dtype), empty((), first.dtype)
    for kernel, grid, (pieces, *given) in _launches(loop, [dense], 0, MOST_PARTS):
        kernel(grid, (THREADS,), (pieces, found, parts, *given))
    last, grid = joining(loop, dtypes.OF_NUMPY[first.dtype].name, count, 1)
    kernel_of(last, first.data.device_id)(grid, (THREADS,), (found, 0, parts, count, 0, 1, 0, 0, 0, 0, given[-1]))
    run_loop(loop, (whole,), (found,), (), Rows(1, count, 1, count, 0, 1))
    return found, whole


@where_it_is(0)
def clip(tensors: Sequence, norm, most: float) -> bool:
    """Multiply tensors in place by most / (norm + 1e-6), if that is less than one. False for tensors that are not dense, or not alike."""
    if type(norm) is not cupy.ndarray or norm.size != 1 or not _are_alike([*tensors, norm]) or not all(map(_is_dense, tensors)):
        return False
    for kernel, grid, (pieces, *given) in _launches(CLIPPED, [tensors, norm]):
        kernel(grid, (THREADS,), (pieces, float(most), *given))
    return True


def _launches(loop: Loop, columns: Sequence, stage: int | None = None, most: int = MOST_BLOCKS) -> Iterator[tuple]:
    """(kernel, grid, the struct Pieces and what comes last) of each launch. Columns are the loop's loads: a list of arrays, one of each tensor, or an array
    for all of them."""
    count = len(columns[0])
    if not count:
        return
    first, along = columns[0][0], loop.loads.count(ROW)
    addresses = [[a.data.ptr for a in c] if type(c) is not cupy.ndarray else [c.data.ptr] * count for c in columns]
    table = np.array([*addresses, [a.size for a in columns[0]]], np.int64)
    pack = 16 // first.itemsize
    pack = 1 if (table[:along] % 16).any() or (table[-1] % pack).any() else pack
    instance = Instance(loop, dtypes.of_array(first).name, THREADS, pack, stage=stage, listed=True)
    kernel, room = kernel_of(instance, first.data.device_id), instance.room
    blocks = min(max(-(-int(table[-1].max()) // (THREADS * pack * AT_ONCE)), 1), most)
    for start in range(0, count, room):
        some = min(room, count - start)
        pieces = np.zeros((len(table), room), np.int64)
        pieces[:, :some] = table[:, start : start + some]
        yield kernel, (blocks, some), (pieces, count, start, blocks)


def _are_alike(tensors: Sequence) -> bool:
    first = tensors[0]
    if any([type(a) is not cupy.ndarray for a in tensors]) or dtypes.OF_NUMPY[first.dtype].name not in REALS:
        return False
    device, dtype = first.data.device_id, first.dtype
    return all([a.dtype == dtype and a.data.device_id == device for a in tensors])


def _is_dense(array) -> bool:
    return array.flags.c_contiguous or layout.is_non_overlapping_and_dense(*arrays.view_of(array))


def _lie_alike(operands: Sequence) -> bool:
    """Whether all are contiguous, as they nearly always are. A kernel asks for no more than where they begin."""
    shape = operands[0].shape
    return all([a._c_contiguous and a.shape == shape for a in operands])
