"""Elements and rows picked by index on a GPU: what `gather.py` does, each in one launch of a kernel of templates/cuda_gather.py.

An address that receives several values gets all of them where they are combined, in no particular order, so that the last digit of a
floating-point sum may differ from run to run, and one of them where it is overwritten; as in PyTorch.

    along   the index has as many dimensions as the array and stands in one of them         gather, scatter
    at      indices for some dimensions, the others are taken whole                         rows, x[i], x[:, i, j]
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import cupy
import numpy as np

from flambeau import dtypes
from flambeau.kernels import arrays, layout
from flambeau.kernels.cuda import error_notes
from flambeau.kernels.cuda.launch import compiled, empty, geometry_of, grid_for, reach_of, where_it_is
from flambeau.kernels.indexing.index_errors import ALONG, INDEX
from flambeau.kernels.language.print_cuda import MAX_DIMS, THREADS
from flambeau.kernels.templates.cuda_gather import GatherInstance, print_gather

Array = Any
NOBODY = -(2**63)  # an index to skip that no index is
FLOAT32, INT32, INT64 = np.dtype(np.float32), np.dtype(np.int32), np.dtype(np.int64)
_BLOCK = (THREADS,)


def along(how: str, array: Array, dim: int, index: Array, values: Array = None, wrap: bool = False, kind: int = ALONG) -> Array | None:
    """array[..., index[..., j, ...], ...] read ("take"), or replaced by ("put") or combined with values[..., j, ...], which broadcast.

    wrap    whether negative indices count from the end        kind    which error an index out of bounds is, see index_errors.py
    """
    return _run(how, array, (dim,), (index,), values, True, wrap, kind, NOBODY)


def at(how: str, array: Array, picks, values: Array = None, wrap: bool = True, kind: int = INDEX, skip: int = NOBODY) -> Array | None:
    """array[picks] read, or replaced by or combined with values, which broadcast. A pick per dimension from the first on: None, or integers.

    skip    an index that is passed over
    """
    dims = tuple([d for d, pick in enumerate(picks) if pick is not None])
    return _run(how, array, dims, [picks[d] for d in dims], values, False, wrap, kind, skip)


def spelled(index: Array, size: int, dim: int, kind: int, wrap: bool = True) -> Array:
    """The index counted from the front, as int64; -1 for what is out of bounds, which is noted: whoever uses it leaves that out."""
    out = empty(index.shape, INT64)
    line = arrays.strided_view(index, (size,), (1,))  # an array of the right size; nothing of it is read
    _run("spell", line, (0,), (index,), out, False, wrap, kind, NOBODY, dim)
    return out


def _run(how, array, dims, indices, values, along, wrap, kind, skip, named=None):
    if values is not None and type(values) is not cupy.ndarray:
        values = arrays.number(values.item(), array, array.dtype)
    if how not in ("take", "put", "spell"):
        return _combined(how, array, dims, indices, values, along, wrap, kind, skip)
    indices = [i if i.dtype == INT64 or i.dtype == INT32 else arrays.cast(i, INT64) for i in indices]
    if how == "put" and values.dtype != array.dtype:
        values = arrays.cast(values, array.dtype)
    return _launch(how, array, dims, indices, values, along, wrap, kind, skip, named)


def _combined(how, array, dims, indices, values, along, wrap, kind, skip):
    """Numbers onto numbers: of four or eight bytes as they are, others by way of such."""
    real, size = array.dtype.kind, array.dtype.itemsize
    if real == "c":
        if how != "add":
            return _in_rounds(array, dims, indices, values, along, wrap, kind)
        return _launch(how, _pairs(array), dims, [_repeated(i) if along else i for i in indices], _pairs(values), along, wrap, kind, skip)
    if size < 4:  # there are no atomic operations on less than four bytes
        half = real in "fV"
        wide = arrays.cast(array, FLOAT32 if half else INT32)
        values = values if half or values.dtype == INT32 else arrays.cast(values, INT32)
        _launch(how, wide, dims, indices, values, along, wrap, kind, skip)
        arrays.write(array, wide)
        return None
    if values.dtype != array.dtype and not (array.dtype == FLOAT32 and values.dtype.itemsize == 2 and values.dtype.kind in "fV"):
        values = arrays.cast(values, array.dtype)
    return _launch(how, array, dims, indices, values, along, wrap, kind, skip)


def _pairs(array: Array) -> Array:
    """Complex numbers as pairs of real ones, in a new last dimension: their sums are two sums."""
    shape, strides = arrays.view_of(array)
    real = np.dtype(f"f{array.itemsize // 2}")
    return arrays.reinterpret(array, real, (*shape, 2), (*[2 * s for s in strides], 1))


def _repeated(index: Array) -> Array:
    """The same index for both of a pair."""
    shape, strides = arrays.view_of(index)
    return arrays.strided_view(index, (*shape, 2), (*strides, 0))


@where_it_is(1)
def _launch(how, array, dims, indices, values, along, wrap, kind, skip, named=None):
    device = array.data.device_id
    view = None if values is None else (values.shape, values.strides, values.dtype.itemsize)
    seen = tuple([(i.shape, i.strides, i.dtype.itemsize) for i in indices])
    moved = how in ("take", "put")
    given = (how, array.shape, array.strides, array.dtype.itemsize, dims, seen, view, along)
    plan = plan_for(*given, moved)
    if how == "take":
        values = empty(plan.shape, array.dtype)
    if not plan.n:
        return values
    near, far = values.data.ptr, array.data.ptr
    if plan.unit == 16 and (near % 16 or far % 16):
        plan = plan_for(*given, False)
    if plan.geometry is None:
        return _laid_out(how, array, dims, indices, values, along, wrap, kind, skip, named)
    units = plan.unit if moved else 8 if how == "spell" else dtypes.OF_NUMPY[array.dtype].name
    instance = GatherInstance(how, units, "" if isinstance(units, int) else dtypes.OF_NUMPY[values.dtype].name, plan.kinds, plan.wide)
    function = compiled(print_gather, instance.function, device, instance)
    described: list = []
    for d, index, step in zip(dims, indices, plan.steps, strict=True):
        described += (index.data.ptr, step, array.shape[d], d if named is None else named)
    function(plan.grid, _BLOCK, (near, far, error_notes.page(device), kind, int(wrap), skip, plan.n, *described, plan.geometry))
    error_notes.launched()
    return values


def _laid_out(how, array, dims, indices, values, along, wrap, kind, skip, named):
    """More loops than a kernel has: the same with everything laid out in one stretch, which leaves few."""
    if array.flags.c_contiguous and all([i.flags.c_contiguous for i in indices]):
        raise NotImplementedError(
            f"indexing {array.ndim} dimensions takes more than {MAX_DIMS} loops on a GPU: try x.flatten() and one index"
        )
    part = array
    if along:
        part = array[tuple([slice(None) if d == dims[0] else slice(n) for d, n in enumerate(indices[0].shape)])]
    whole = arrays.contiguous_copy(part)
    group = layout.broadcast_shapes(*[i.shape for i in indices])
    indices = [arrays.contiguous_copy(cupy.broadcast_to(i, group)) for i in indices]
    found = _launch(how, whole, dims, indices, None if how == "take" else values, along, wrap, kind, skip, named)
    if how != "take":
        arrays.write(part, whole)
    return found


# -- plans -------------------------------------------------------------------------------------------------------------------


class Plan(NamedTuple):
    """The work for one geometry; `geometry` is None where there are more loops than a kernel has.

    unit    bytes moved at once: see templates/cuda_gather.UNITS        steps   of the indexed dimensions on the far side, in units
    """

    shape: tuple[int, ...]
    n: int
    unit: int = 0
    wide: bool = False
    kinds: str = ""
    steps: tuple[int, ...] = ()
    grid: tuple[int, ...] = (0,)
    geometry: np.ndarray | None = None


@lru_cache(2048)
def plan_for(how, shape, strides, size, dims, indices, values, along: bool, packs: bool) -> Plan:
    """The plan for an array and indices of these shapes and strides in bytes; `packs`: 16 bytes may be moved at once where they lie together."""
    far = tuple([s // size for s in strides])
    steps = tuple([far[d] for d in dims])
    index_views = [(s, tuple([b // z for b in t])) for s, t, z in indices]
    if along:
        (near_shape, picks), far = index_views[0], tuple([0 if d == dims[0] else s for d, s in enumerate(far)])
        index_steps = [picks]
    else:
        near_shape, far, index_steps = _picked(shape, far, dims, index_views, how == "spell")
    if values is None:
        near = layout.contiguous_strides(near_shape)
    else:
        if values[0] != near_shape and layout.broadcast_shapes(near_shape, values[0]) != near_shape:
            found = f"value tensor of shape {list(values[0])} cannot be broadcast to {list(near_shape)}, the shape of what is written"
            raise RuntimeError(f"shape mismatch: {found}")
        own = tuple([b // values[2] for b in values[1]])
        near = layout.broadcast_strides(values[0], own, near_shape)
    n = math.prod(near_shape)
    if not n:
        return Plan(near_shape, 0)
    loops, (near, far, *index_steps) = layout.collapse(near_shape, near, far, *index_steps)
    if not loops:
        loops, near, far, index_steps = (1,), (0,), (0,), [(0,)] * len(dims)
    if len(loops) > MAX_DIMS:
        return Plan(near_shape, n)
    unit, share = size if size < 16 else 17, 1
    if packs and size < 16 and near[-1] == far[-1] == 1 and not any([s[-1] for s in index_steps]):
        share = math.gcd(16 // size, loops[-1], *near[:-1], *far[:-1], *steps)
        if share == 16 // size:
            unit = 16
            loops = (*loops[:-1], loops[-1] // share)
            near, far = ((*[s // share for s in side[:-1]], 1) for side in (near, far))
            steps = tuple([s // share for s in steps])
    all_steps = [near, far, *index_steps]
    wide, count = reach_of(loops, all_steps) >= 2**31, math.prod(loops)
    kinds = "".join(["l" if z == 8 else "i" for *_, z in indices])
    return Plan(near_shape, count, unit, wide, kinds, steps, grid_for(count), geometry_of(loops, all_steps, wide))


def _picked(shape, far, dims, index_views, alone: bool):
    """(shape of the near side, steps of the far one, steps of the indices): the picked dimensions stand together, as x[...] has it."""
    group = layout.broadcast_shapes(*[s for s, _ in index_views])
    kept = [] if alone else [d for d in range(len(shape)) if d not in dims]
    position = dims[0] if dims[-1] - dims[0] + 1 == len(dims) else 0
    before, after = kept[:position], kept[position:]
    near = (*[shape[d] for d in before], *group, *[shape[d] for d in after])
    steps = (*[far[d] for d in before], *(0,) * len(group), *[far[d] for d in after])
    picks = [(*(0,) * len(before), *layout.broadcast_strides(own, steps_of, group), *(0,) * len(after)) for own, steps_of in index_views]
    return near, steps, picks


# -- products of complex numbers -----------------------------------------------------------------------------------------------


def _in_rounds(array, dims, indices, values, along, wrap, kind) -> None:
    """array[index] *= values, for dtypes without atomic operations: the first factor for every address, then every second one, ..."""
    shape, strides = arrays.view_of(array)
    places = arrays.strided_view(cupy.arange(layout.storage_extent(shape, strides)), shape, strides)
    where = _run("take", places, dims, indices, None, along, wrap, kind, NOBODY)
    flat = arrays.strided_view(array, (layout.storage_extent(shape, strides),), (1,))
    addresses, values = where.reshape(-1), cupy.broadcast_to(values, where.shape).reshape(-1)
    order = addresses.argsort()
    ordered = addresses[order]
    first = cupy.flatnonzero(cupy.concatenate((cupy.ones(1, bool), ordered[1:] != ordered[:-1])))
    counted = cupy.arange(addresses.size)
    occurrence = counted - first[cupy.searchsorted(first, counted, side="right") - 1]
    for k in range(int(occurrence.max()) + 1):
        chosen = order[occurrence == k]
        flat[addresses[chosen]] *= values[chosen]
