"""Recurrent networks on a GPU: one launch for all steps where the weights fit into a multiprocessor, else a product and a launch per step.

`forward` and `backward` take what the compiled loops of the CPU take (see `recurrent.py`); all arrays are contiguous. Wherever there is no
operand its address is 0, which is not read.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate

import cupy
import numpy as np

from flambeau import dtypes
from flambeau.kernels.cuda.gemm import with_rows
from flambeau.kernels.cuda.launch import compiled, most_shared_memory, multiprocessors, where_it_is, with_shared_memory
from flambeau.kernels.language.print_cuda import THREADS
from flambeau.kernels.templates.cuda_recurrent import Walk, print_step, print_walk, step_name
from flambeau.kernels.templates.recurrent import GATES

MOST_ROWS = 8  # samples of a block: with more of them products by cuBLASLt are better
FEW_STEPS = 2  # so few are not worth bringing all weights to every multiprocessor
REGISTERS = 128  # of a thread, for weights


@where_it_is(1)
def forward(cell: str, gates, weight, bias, h0, c0, out, cells, keep, sizes, reverse: bool) -> None:
    """Write outputs, the lstm's cell states, and what backward needs unless keep is empty (a plain network needs nothing)."""
    device, hidden, dtype = out.data.device_id, weight.shape[1], dtypes.OF_NUMPY[out.dtype].name
    keeps = keep.size > 0
    given = [_pointer(a) for a in (out, cells, keep, gates, weight, bias, h0, c0)]
    walk = None if len(sizes) <= FEW_STEPS else _walk(cell, dtype, False, sizes[0], hidden, device, keeps)
    if walk is not None:
        return _run(walk, given, sizes, hidden, reverse, device)
    out_, cells_, keep_, gates_, _, bias_, h0_, c0_ = given
    wide, size = weight.shape[0], out.itemsize
    row, gate_row, kept_row = hidden * size, wide * size, 4 * hidden * size * keeps
    sums = cupy.empty((sizes[0], wide), out.dtype)
    sums_ = sums.data.ptr
    state_, start_ = (cells_, c0_) if cell == "lstm" else (out_, h0_)
    name = step_name(cell, dtype, False)
    step, multiply = compiled(print_step, name, device, cell, dtype, False, keeps), with_rows(weight, True, 0)
    for first, some, kept, before in _steps(sizes, reverse):
        if kept:
            multiply(kept, out_ + before * row, sums_)
        if kept < some:
            multiply(some - kept, h0_ + kept * row, sums_ + kept * gate_row)
        step(
            ((some * hidden + THREADS - 1) // THREADS,), (THREADS,),
            (out_ + first * row, cells_ + first * row, keep_ + first * kept_row, gates_ + first * gate_row, sums_, bias_,
             state_ + before * row, start_, some, kept, hidden),
        )  # fmt: skip


@where_it_is(3)
def backward(cell: str, g, gc, weight, start, state, keep, dx, da, dh0, dc0, sizes, reverse: bool) -> None:
    """Write the gradients of gates (dx, of the input's part; da, of the state's, which are one array unless it is a gru), h0 and c0."""
    device, hidden, dtype = dx.data.device_id, weight.shape[1], dtypes.OF_NUMPY[dx.dtype].name
    given = [_pointer(a) for a in (dx, da, dh0, dc0, g, gc, keep, state, start, weight)]
    walk = None if len(sizes) <= FEW_STEPS else _walk(cell, dtype, True, sizes[0], hidden, device)
    if walk is not None:
        return _run(walk, given, sizes, hidden, reverse, device)
    dx_, da_, dh_, dc_, g_, gc_, keep_, state_, start_, _ = given
    size = dx.itemsize
    row, gate_row, kept_row = hidden * size, weight.shape[0] * size, 4 * hidden * size
    for carried in (dh0, dc0)[: 1 + (cell == "lstm")]:
        carried.data.memset_async(0, carried.nbytes)
    name = step_name(cell, dtype, True)
    step, multiply = compiled(print_step, name, device, cell, dtype, True, True), with_rows(weight, False, int(cell == "gru"))
    for first, some, kept, before in reversed(_steps(sizes, reverse)):
        step(
            ((some * hidden + THREADS - 1) // THREADS,), (THREADS,),
            (dx_ + first * gate_row, da_ + first * gate_row, dh_, dc_, g_ and g_ + first * row, gc_ and gc_ + first * row,
             keep_ + first * kept_row, state_ + first * row, state_ + before * row, start_, some, kept, hidden),
        )  # fmt: skip
        multiply(some, da_ + first * gate_row, dh_)


def _run(walk: Walk, given: list[int], sizes, hidden: int, reverse: bool, device: int) -> None:
    shared = walk.shared(hidden)
    kernel = _kernel(walk, device)
    at = 0 if sizes[-1] == sizes[0] else _offsets(tuple(sizes), device).data.ptr
    grid = (-(-sizes[0] // walk.rows),)
    kernel(grid, (walk.threads,), (*given, at, sizes[0], len(sizes), hidden, int(reverse)), shared)


def _pointer(array) -> int:
    return 0 if array is None else array.data.ptr


@lru_cache(None)
def _kernel(walk: Walk, device: int):
    """The kernel, allowed as much shared memory as the largest state that it takes needs."""
    return with_shared_memory(compiled(print_walk, walk.function, device, walk), min(walk.shared(walk.depth), most_shared_memory(device)))


@lru_cache(1024)
def _walk(cell: str, dtype: str, backward: bool, samples: int, hidden: int, device: int, keeps: bool = True) -> Walk | None:
    """The kernel for all steps; None where weights, or samples, are too many for it."""
    words, wide = 2 if dtype == "float64" else 1, GATES[cell] * hidden
    threads, depth = -(-wide // 32) * 32, -(-hidden // 4) * 4
    if threads > 1024:
        return None
    room = multiprocessors(device) * max(1024 // threads, 1)
    rows = next((r for r in (1, 2, 4, MOST_ROWS) if samples <= r * room), 0)
    if not rows:
        return None
    registers = min(65536 // threads // 8 * 8, 255) - 56 - rows * words * (4 if rows < 4 else 3)
    kept = max(min(registers // words, REGISTERS // words) // 4 * 4, 0)
    walk = Walk(cell, dtype, backward, rows, depth, min(kept, depth), threads, keeps)
    return walk if walk.shared(hidden) <= most_shared_memory(device) else None


@lru_cache(256)
def _offsets(sizes: tuple[int, ...], device: int):
    """The first row of each step, and the end, on the GPU."""
    return cupy.asarray(np.array([0, *accumulate(sizes)], np.int64))


@lru_cache(256)
def _steps(sizes: tuple[int, ...], reverse: bool) -> tuple[tuple[int, int, int, int], ...]:
    """(first row, rows, how many of them come from the step before, that step's first row) in the order of work."""
    starts, found, before = [0, *accumulate(sizes)], [], None
    for t in reversed(range(len(sizes))) if reverse else range(len(sizes)):
        found.append((starts[t], sizes[t], 0 if before is None else min(sizes[before], sizes[t]), 0 if before is None else starts[before]))
        before = t
    return tuple(found)
