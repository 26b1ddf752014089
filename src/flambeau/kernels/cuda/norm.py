"""Batch norm and group norm on a GPU: one launch where a block has little to do for a set of numbers, else one for sums and one for results.

All answer None where x is not laid out as lines or columns (see cuda/print_norm.py); NumPy's way then is CuPy's, too (`loops/channels.py`).
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import NamedTuple

import cupy
import numpy as np

from flambeau import dtypes
from flambeau.kernels import arrays, layout
from flambeau.kernels.cuda.launch import compiled, multiprocessors, strided, where_it_is
from flambeau.kernels.cuda.print_norm import Norm, print_norm
from flambeau.kernels.language.print_cuda import THREADS

ENOUGH = 2048  # elements of a part that are worth a block of its own
ndarray = cupy.ndarray


@where_it_is(0)
def norm(x, weight, bias, eps: float, groups: int, running: dict | None = None) -> tuple | None:
    """((x - mean) * rstd * weight + bias, mean, rstd, var); running averages are moved towards these, and "done" is noted with them."""
    sets = _sets(x, (weight, bias), groups)
    if sets is None:
        return None
    device, dtype = x.data.device_id, x.dtype
    shape = (x.shape[0], groups) if groups else (x.shape[1],)
    out = strided(x.shape, x.strides, dtype)
    mean, rstd, var = (ndarray(shape, dtype) for _ in range(3))
    moved, momentum = (0, 0), 0.0
    if running is not None and all([a.dtype == dtype and a.flags.c_contiguous for a in (running["mean"], running["var"])]):
        moved, momentum, running["done"] = (running["mean"].data.ptr, running["var"].data.ptr), running["momentum"], True
    parts = cupy.empty(3 * sets.splits * sets.sets, np.float64) if sets.splits > 1 else None
    pointers = [a.data.ptr for a in (out, x, weight, bias, mean, rstd, var)]
    given = (*pointers, *moved, 0 if parts is None else parts.data.ptr, float(eps), float(momentum), *sets.numbers)
    for stage in ("whole",) if sets.splits == 1 else ("part", "finish"):
        _kernel(sets, dtype, False, stage, device)(sets.grid, (THREADS,), given)
    return out, mean, rstd, var


@where_it_is(0)
def by_running(x, mean, var, weight, bias, eps: float, groups: int):
    """(x - mean) / sqrt(var + eps) * weight + bias."""
    sets = _sets(x, (mean, var, weight, bias), 0)  # each channel is a set, whatever rows are on a CPU
    if sets is None:
        return None
    device = x.data.device_id
    out = strided(x.shape, x.strides, x.dtype)
    pointers = [a.data.ptr for a in (out, x, weight, bias, mean)]
    given = (*pointers, 0, var.data.ptr, 0, 0, 0, float(eps), 0.0, *sets.numbers)
    _kernel(sets, x.dtype, False, "given", device)(sets.grid, (THREADS,), given)
    return out


@where_it_is(1)
def norm_backward(g, x, weight, mean, rstd, groups: int) -> tuple | None:
    """The gradients of x, weight and bias."""
    sets = _sets(x, (weight, mean, rstd), groups)
    if sets is None:
        return None
    device, dtype, channels = x.data.device_id, x.dtype, x.shape[1]
    if g.strides != x.strides or g.dtype != dtype:
        turned = strided(x.shape, x.strides, dtype)
        arrays.write(turned, g)
        g = turned
    out = strided(x.shape, x.strides, dtype)
    dweight, dbias = (ndarray((channels,), dtype) for _ in range(2))
    pointers = [a.data.ptr for a in (out, dweight, dbias, g, x, weight, mean, rstd)]
    if groups:  # every channel of every sample is a set of its own first
        each, length = channels // groups, prod(x.shape[2:])
        count = x.shape[0] * channels
        lines = _cut(count, length, length, 0, length, False, multiprocessors(device), 1)
        parts = cupy.empty(2 * count, np.float64)
        numbers = (count, length, length, 0, length, length, 1, 0, 1, each)
        _kernel(lines, dtype, True, "part", device)((lines.grid[0],), (THREADS,), (*pointers, parts.data.ptr, *numbers))
        grid = (sets.grid[0] + -(-channels // THREADS), sets.grid[1])
        numbers = (*sets.numbers[:6], each, each, groups, 1)
        _kernel(sets, dtype, True, "finish", device)(grid, (THREADS,), (*pointers, parts.data.ptr, *numbers))
        return out, dweight, dbias
    parts = cupy.empty(2 * sets.splits * sets.sets, np.float64) if sets.splits > 1 else None
    given = (*pointers, 0 if parts is None else parts.data.ptr, *sets.numbers, 1)
    for stage in ("whole",) if sets.splits == 1 else ("part", "finish"):
        _kernel(sets, dtype, True, stage, device)(sets.grid, (THREADS,), given)
    return out, dweight, dbias


LOOPS = {"norm": norm, "norm_backward": norm_backward, "norm_backward_grouped": norm_backward, "by_running": by_running}


def run(name: str, operands, options, groups: int, **more):
    """The stores of a loop over channels; None where there is no kernel, or not for these."""
    return LOOPS[name](*operands, *options, groups, **more) if name in LOOPS else None


class Sets(NamedTuple):
    """Sets of numbers, and how blocks share them; `numbers` are the kernels' last parameters."""

    sets: int
    splits: int
    lanes: int
    columns: bool
    grid: tuple[int, int]
    numbers: tuple[int, ...]


def _sets(x, others, groups: int) -> Sets | None:
    if type(x) is not ndarray or x.dtype.char not in "fd" or not x.size:
        return None
    if any([type(a) is not ndarray or a.dtype != x.dtype or not a.flags.c_contiguous for a in others]):
        return None
    return _sets_of(x.shape, tuple([s // x.itemsize for s in x.strides]), groups, multiprocessors(x.data.device_id))


@lru_cache(1024)
def _sets_of(shape: tuple[int, ...], strides: tuple[int, ...], groups: int, processors: int) -> Sets | None:
    samples, channels, *places = shape
    length = prod(places)
    lies = layout.is_contiguous(shape, strides)
    if groups:
        each = channels // groups
        return _cut(samples * groups, each * length, length, length, each * length, False, processors, 0, each, groups) if lies else None
    if lies and length > 1:
        return _cut(channels, samples * length, length, channels * length, length, False, processors)
    if layout.is_contiguous((samples, *places, channels), (strides[0], *strides[2:], strides[1])):
        return _cut(channels, samples * length, 1, channels, 1, True, processors)
    return None


def _cut(sets: int, count: int, length: int, apart: int, step: int, columns: bool, processors: int, most: int = 0, *weights: int) -> Sets:
    """How many lanes a set has, and how many blocks (`most`, if given)."""
    lanes = 8 if columns else 32 if count <= 512 else THREADS
    blocks = -(-sets * lanes // THREADS)
    worth = max(count * (THREADS // lanes if columns else 1) // ENOUGH, 1)
    splits = max(min(4 * processors // blocks, worth, most or 256), 1)
    chunk = -(-count // splits)
    splits = -(-count // chunk)
    numbers = (sets, count, length, apart, step, chunk, splits, *(weights or (0, 1)))
    return Sets(sets, splits, lanes, columns, (blocks, splits), numbers)


def _kernel(sets: Sets, dtype: np.dtype, backward: bool, stage: str, device: int):
    kernel = Norm(dtypes.OF_NUMPY[dtype].name, backward, stage, sets.lanes, sets.columns)
    return compiled(print_norm, kernel.function, device, kernel)
