"""Pooling of arrays: the greatest number, or the average, of every window. x is (M, *S): M planes of any number of dimensions.

A window is a table per dimension, (number of windows, numbers in one), of positions in that dimension; -1 where a window sticks out.
Windows that slide evenly, adaptive windows (as equal as the size allows) and random ones (`fractional_starts`) differ in their tables only. All but
random windows have compiled loops in float32 and float64 (`pool_loops.py`), and kernels on a GPU (`cuda/pooling.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from flambeau.kernels import arrays, layout
from flambeau.kernels.indexing import gather
from flambeau.kernels.native import native
from flambeau.kernels.templates import gemm
from flambeau.kernels.templates.pool_loops import plan

Array = Any
Sizes = tuple[int, ...]
FLOAT32, INT64 = np.dtype(np.float32), np.dtype(np.int64)
KINDS = {"f": "f32", "d": "f64"}  # dtypes that have compiled loops
TASK = 1 << 14  # numbers of the larger side that a task reads or writes


class Windows(NamedTuple):
    """Windows by their numbers per dimension; () everywhere for adaptive ones.

    padded    whether padding counts in an average, but not what lies beyond it        divisor   what sums are divided by instead, or 0
    """

    kernel: Sizes = ()
    stride: Sizes = ()
    padding: Sizes = ()
    dilation: Sizes = ()
    padded: bool = False
    divisor: int = 0


ADAPTIVE = Windows()


def sliding(size: int, count: int, kernel: int, stride: int, padding: int, dilation: int) -> np.ndarray:
    """The table of windows that slide evenly: (count, kernel)."""
    at = np.arange(count)[:, None] * stride - padding + np.arange(kernel) * dilation
    return np.where((at < 0) | (at >= size), -1, at)


def adaptive(size: int, count: int) -> np.ndarray:
    """The table of `count` windows from i size / count to (i + 1) size / count, rounded outward."""
    i = np.arange(count)
    starts, ends = i * size // max(count, 1), -((-(i + 1) * size) // max(count, 1))
    at = starts[:, None] + np.arange(int((ends - starts).max(initial=0)))
    return np.where(at < ends[:, None], at, -1)


def fractional_starts(sample: np.ndarray, size: int, count: int, kernel: int) -> np.ndarray:
    """Where windows start whose distances are drawn, by one random number u per plane: (M,) -> (M, count). The last one ends at the edge."""
    alpha = sample.dtype.type((size - kernel) / (count - 1) if count > 1 else 0)
    u = sample[:, None]
    starts = ((np.arange(count, dtype=sample.dtype) + u) * alpha).astype(np.int64) - (u * alpha).astype(np.int64)
    starts[:, -1:] = size - kernel
    return starts


def addresses(tables: Sequence[np.ndarray], sizes: Sizes) -> list[np.ndarray]:
    """The positions of all windows in a flattened plane, -1 for none: for each number of a window an array (..., P) of all windows.

    Tables are (windows, numbers), or (M, windows, numbers) where each plane has its own."""
    lead = tables[0].shape[:-2]
    found = np.zeros((*lead, 1, 1), np.int64)
    for table, size in zip(tables, sizes, strict=True):
        both = np.where((found[..., :, None, :, None] < 0) | (table[..., None, :, None, :] < 0), -1,
                        found[..., :, None, :, None] * size + table[..., None, :, None, :])  # fmt: skip
        found = both.reshape(*lead, both.shape[-4] * both.shape[-3], both.shape[-2] * both.shape[-1])
    return [found[..., k] for k in range(found.shape[-1])]


def greatest(x: Array, tables: Sequence[np.ndarray]) -> tuple[Array, Array]:
    """(the greatest number of each window, its position in the flattened plane). NaN is greater than all; of equal ones the first counts."""
    xp = arrays.module_of(x)
    planes, spots = x.shape[0], [t.shape[-2] for t in tables]
    flat, half = x.reshape(planes, math.prod(x.shape[1:])), x.dtype.kind == "V"
    if 0 in spots:
        return tuple(arrays.empty_beside(x, (planes, *spots), dtype) for dtype in (x.dtype, np.dtype(np.int64)))
    best = index = None
    for at in addresses(tables, x.shape[1:]):
        at = xp.asarray(at)
        here = xp.maximum(at, 0)
        value = flat[:, here] if at.ndim == 1 else xp.take_along_axis(flat, here, 1)
        value = value.astype(FLOAT32) if half else value
        if best is None:
            best, index = value, xp.broadcast_to(at, value.shape).copy()
            continue
        # A window that began outside has index -1 and takes whatever comes first.
        better = ((value > best) | (value != value) | (index < 0)) & (at >= 0)
        best, index = xp.where(better, value, best), xp.where(better, at, index)
    shape = (planes, *spots)
    return tuple(arrays.contiguous(a).reshape(shape) for a in (best.astype(x.dtype), index))


def greatest_sliding(x: Array, sizes: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes) -> tuple[Array, Array]:
    """`greatest` of evenly sliding windows of x (*, *S), in the shape and the order of dimensions of x: by a compiled loop, where there is one."""
    n, windows = len(sizes), Windows(kernel, stride, padding, dilation)
    if type(x) is not np.ndarray:
        return arrays.cuda_room.pooled("max", x, x.shape[-n:], sizes, windows)
    found = _greatest_at_once(x, sizes, windows)
    if found is not None:
        return found
    tables = [sliding(*d) for d in zip(x.shape[-n:], sizes, kernel, stride, padding, dilation, strict=True)]
    value, index = greatest(planes(x, n), tables)
    return like(x, value, n), like(x, index, n)


def greatest_alone(x: Array, sizes: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes) -> Array:
    """The first of `greatest_sliding`, where nobody asks for the second."""
    windows = Windows(kernel, stride, padding, dilation)
    if type(x) is np.ndarray and not _is_half(x):
        way = _max_way(x.shape, x.strides, x.dtype, sizes, windows, False)
        if way is not None:
            return _run_max(way, x)
    return greatest_sliding(x, sizes, kernel, stride, padding, dilation)[0]


def greatest_adaptive(x: Array, sizes: Sizes) -> tuple[Array, Array]:
    """`greatest` of adaptive windows of x (*, *S), in the shape and the order of dimensions of x; those of volumes are row-major."""
    n = len(sizes)
    x = arrays.contiguous(x) if n == 3 else x
    if type(x) is not np.ndarray:
        return arrays.cuda_room.pooled("max", x, x.shape[-n:], sizes, ADAPTIVE)
    found = _greatest_at_once(x, sizes, ADAPTIVE)
    if found is not None:
        return found
    value, index = greatest(planes(x, n), [adaptive(*d) for d in zip(x.shape[-n:], sizes, strict=True)])
    return like(x, value, n), like(x, index, n)


def _greatest_at_once(x: np.ndarray, sizes: Sizes, windows: Windows) -> tuple[np.ndarray, np.ndarray] | None:
    """The same by a compiled loop; None where there is none."""
    if _is_half(x):
        found = _greatest_at_once(arrays.cast(x, FLOAT32), sizes, windows)
        return None if found is None else (arrays.cast(found[0], x.dtype), found[1])
    way = _max_way(x.shape, x.strides, x.dtype, sizes, windows, True)
    return None if way is None else _run_max_at(way, x)


def greatest_ready(x: np.ndarray, sizes: Sizes, windows: Windows) -> Callable | None:
    """What `greatest_sliding` and `greatest_adaptive` do with arrays like this one, as a function of them."""
    way = None if len(sizes) == 3 and not windows.kernel else _max_way(x.shape, x.strides, x.dtype, sizes, windows, True)
    return None if way is None else partial(_run_max_at, way)


def greatest_alone_ready(x: np.ndarray, sizes: Sizes, windows: Windows) -> Callable | None:
    """The same of `greatest_alone`."""
    way = _max_way(x.shape, x.strides, x.dtype, sizes, windows, False)
    return None if way is None else partial(_run_max, way)


class Way(NamedTuple):
    """A loop that is known, and all it takes but for arrays; shape and strides (in elements, None if they are row-major) of the result."""

    into: Callable
    shape: Sizes
    strides: Sizes | None
    dtype: np.dtype
    tasks: np.ndarray
    plan: np.ndarray
    line: int


def _way(name: str, shape: Sizes, strides: Sizes, dtype: np.dtype, fields: dict[str, int], tasks: int, work: int) -> Way:
    into = native.kernel(f"pool.{name}_{KINDS[dtype.char]}").into
    given = native.strided_view(plan(fields), (), (), 0)
    dense = strides == layout.contiguous_strides(shape)
    return Way(into, shape, None if dense else strides, dtype, np.arange(tasks), given, max(min(work // (8 * tasks), 1 << 15), 1))


def _carry_out(way: Way, x: np.ndarray, y: np.ndarray, at: np.ndarray | None = None) -> None:
    """Run all tasks of a loop on these arrays, which lie as the plan says, side by side if there is enough work for that."""
    view, done = native.strided_view, native.empty(way.tasks.shape, INT64)
    places = way.plan if at is None else view(at, (), (), 0)  # which is not looked at, if there are none
    if way.into(done, way.tasks, way.plan, view(x, (), (), 0), view(y, (), (), 0), places, way.line) is NotImplemented:
        raise RuntimeError("the compiled loops of pooling do not take their plan: they were built from other sources")
    if 2 in done.tolist():
        raise MemoryError("pooling: no memory for some rows of the input")


def _result(way: Way, dtype: np.dtype) -> np.ndarray:
    return native.empty(way.shape, dtype) if way.strides is None else native.empty_strided(way.shape, way.strides, dtype)


def _run_max(way: Way, x: np.ndarray) -> np.ndarray:
    value = native.empty(way.shape, way.dtype) if way.strides is None else native.empty_strided(way.shape, way.strides, way.dtype)
    _carry_out(way, x, value)
    return value


def _run_max_at(way: Way, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    value, index = _result(way, way.dtype), _result(way, INT64)
    _carry_out(way, x, value, index)
    return value, index


@lru_cache(maxsize=256)
def _max_way(shape: Sizes, steps: Sizes, dtype: np.dtype, sizes: Sizes, windows: Windows, places: bool) -> Way | None:
    """How the greatest are found, and the places of them if these are asked for; None where there is no loop."""
    n, ndim = len(sizes), len(shape)
    out = (*shape[: ndim - n], *sizes)
    if ndim not in (n + 1, n + 2) or not _has_loop(dtype) or not 0 < math.prod(shape) < 1 << 31 or not math.prod(out):
        return None
    steps = tuple([s // dtype.itemsize for s in steps])
    strides = layout.contiguous_strides(out)
    last = n > 1 and ndim == n + 2 and layout.looks_channels_last(shape, steps)
    if last and (steps[1] != 1 or not places):  # gaps between the channels, or there is no loop for values alone
        return None
    if last:
        strides = layout.channels_last_strides(out)

    def five(numbers: Sizes) -> Sizes:
        """Of (batch, channels, depth, height, width), those that are not there as 0."""
        return (*(0,) * (n + 2 - ndim), *numbers[: ndim - n], *(0,) * (3 - n), *numbers[ndim - n :])

    channels, batch = shape[ndim - n - 1], shape[0] if ndim == n + 2 else 1
    fields = {"channels": channels, "planes": batch * (1 if last else channels), "last": int(last), "places": int(places)}
    fields |= zip("xn xc xd xh xw yn yc yd yh yw".split(), (*five(steps), *five(strides)), strict=True)
    fields |= _dimensions(shape[ndim - n :], sizes, windows)
    fields |= {"block": _rows(fields, "OD", "OH", math.prod(shape))}
    if not (places or fields["KW"]):  # adaptive windows have no loop for values alone
        return None
    tasks = -(-fields["planes"] * fields["OD"] * fields["OH"] // fields["block"])
    work = max(math.prod(out) * math.prod(windows.kernel), math.prod(shape)) * 2
    return _way("max", out, strides, dtype, fields, tasks, work)


def _dimensions(large: Sizes, small: Sizes, windows: Windows) -> dict[str, int]:
    """Sizes of planes, and windows by their numbers: those of adaptive ones that slide after all, else kernels of 0."""
    if not windows.kernel:
        even = all([count and size % count == 0 for size, count in zip(large, small, strict=True)])
        width = tuple([size // count if even else 0 for size, count in zip(large, small, strict=True)])
        windows = Windows(width, width if even else (1,) * len(width), (0,) * len(width), (1,) * len(width))
    rows = (
        (1, large),
        (1, small),
        (min(windows.kernel[0], 1), windows.kernel),
        (1, windows.stride),
        (0, windows.padding),
        (1, windows.dilation),
    )
    names = "D H W", "OD OH OW", "KD KH KW", "sd sh sw", "pd ph pw", "dd dh dw"
    found: dict[str, int] = {}
    for name, (missing, numbers) in zip(names, rows, strict=True):
        found |= zip(name.split(), (missing,) * (3 - len(large)) + tuple(numbers), strict=True)
    return found


def _rows(fields: dict[str, int], depth: str, height: str, size: int) -> int:
    """How many rows make a task: about TASK of the `size` numbers of all. Whole planes, if these are not more."""
    rows = fields[depth] * fields[height]
    block = max(TASK * fields["planes"] * rows // size, 1)
    return block // rows * rows if block >= rows else block


def _has_loop(dtype: np.dtype) -> bool:
    return dtype.char in KINDS and native.kernel("pool.max_f32") is not native.not_compiled


def _is_half(x: np.ndarray) -> bool:
    return x.dtype.itemsize == 2 and x.dtype.kind in "fV"


def spread(values: Array, indices: Array, sizes: Sizes, windows: Windows | None = None) -> Array:
    """A plane of zeros with each value added at its index: (*, *P), (*, *P) -> (*, *sizes). `windows`: where the indices were found."""
    n = len(sizes)
    if type(values) is not np.ndarray:
        if windows is not None:
            return arrays.cuda_room.pooled("spread", values, sizes, values.shape[-n:], Windows(*windows), indices)[0]
    elif _is_half(values):
        return arrays.cast(spread(arrays.cast(values, FLOAT32), indices, sizes, windows), values.dtype)
    lead, room, count = values.shape[: values.ndim - n], math.prod(sizes), math.prod(values.shape[values.ndim - n :])
    if type(values) is not np.ndarray or not _has_loop(values.dtype) or not values.size:
        flat, at = (arrays.contiguous(a).reshape(math.prod(lead), count) for a in (values, indices))
        rows = arrays.zeros((math.prod(lead), room), values.dtype, arrays.device_of(values))
        gather.scatter_reduce(rows, 1, at, flat, "sum")
        return rows.reshape(*lead, *sizes)
    last = n > 1 and values.ndim == n + 2 and layout.looks_channels_last(*arrays.view_of(indices))
    if last and n == 2:  # channels of a pixel are neighbours
        out = native.empty_strided((*lead, *sizes), layout.channels_last_strides((*lead, *sizes)), values.dtype)
        flat, at = (arrays.contiguous(a.transpose(0, 2, 3, 1)) for a in (values, indices))
        way = _spread_way(values.dtype, lead[0], lead[1], sizes, values.shape[2:], windows)
    else:
        out = native.empty((*lead, *sizes), values.dtype)
        flat, at = (arrays.contiguous(a) for a in (values, indices))
        way = _spread_way(values.dtype, math.prod(lead), 1, (1, room), (1, count), None)
    _carry_out(way, out, flat, at)
    if last and n == 3:
        order, back = arrays.orders(5, last)
        return arrays.contiguous(out.transpose(order)).transpose(back)
    return out


@lru_cache(maxsize=256)
def _spread_way(dtype: np.dtype, planes: int, channels: int, large: Sizes, small: Sizes, windows: Windows | None) -> Way:
    """How values are spread: some planes to a task, or some channels of one image."""
    room, some = math.prod(large), channels
    block = max(TASK // (room * channels), 1)
    while some > 32 and some * room > 2 * TASK and planes * -(-channels // some) < 8:
        some = -(-some // 2)
    fields = {"planes": planes, "channels": channels, "block": block, "xc": some, "places": 1}
    if windows is not None and windows.kernel:
        fields |= _dimensions(large, small, windows)
    else:
        fields |= {"H": 1, "W": room, "OH": 1, "OW": math.prod(small)}
    return _way("spread", (), (), dtype, fields, -(-planes // block) * -(-channels // some), planes * channels * room * 8)


def averaged(x: Array, small: Sizes, large: Sizes, windows: Windows, back: bool) -> Array:
    """The average of every window, (*, *large) -> (*, *small); or `back`: every number shared among its window, the other way."""
    n = len(large)
    if type(x) is not np.ndarray:
        return arrays.cuda_room.pooled("share" if back else "average", x, large, small, windows, formats=n == 2)[0]
    if _is_half(x):
        return arrays.cast(averaged(arrays.cast(x, FLOAT32), small, large, windows, back), x.dtype)
    found = _averaged_at_once(x, small, large, windows, back)
    if found is not None:
        return found
    flat = planes(x, n)
    found = _mean(flat, small, large, windows, back) if windows.kernel else adaptive_mean(flat, small, large, back)
    found = arrays.cast(found, x.dtype)
    return like(x, found, n) if n == 2 else found.reshape(*x.shape[: x.ndim - n], *found.shape[1:])


def _averaged_at_once(x: np.ndarray, small: Sizes, large: Sizes, windows: Windows, back: bool) -> np.ndarray | None:
    """The same by a compiled loop; None where there is none."""
    n = len(large)
    last = n == 2 and x.ndim == 4 and layout.looks_channels_last(*arrays.view_of(x))
    way = _average_way(x.shape, x.dtype, small, large, windows, back, last)
    return None if way is None else _run_average(way, back, arrays.contiguous(x.transpose(0, 2, 3, 1) if last else x))


def averaged_ready(x: np.ndarray, small: Sizes, large: Sizes, windows: Windows, back: bool) -> Callable | None:
    """What `averaged` does with arrays like this one, if it is row-major, as a function of them."""
    way = _average_way(x.shape, x.dtype, small, large, windows, back, False) if x.flags.c_contiguous else None
    last = way is not None and len(large) == 2 and x.ndim == 4 and layout.looks_channels_last(*arrays.view_of(x))
    return None if way is None or last else partial(_run_average, way, back)


def _run_average(way: Way, back: bool, x: np.ndarray) -> np.ndarray:
    out = native.empty(way.shape, way.dtype) if way.strides is None else native.empty_strided(way.shape, way.strides, way.dtype)
    if back:
        _carry_out(way, out, x)
    else:
        _carry_out(way, x, out)
    return out


@lru_cache(maxsize=256)
def _average_way(shape: Sizes, dtype: np.dtype, small: Sizes, large: Sizes, windows: Windows, back: bool, last: bool) -> Way | None:
    """How averages are found, or shared; None where there is no loop."""
    lead = shape[: len(shape) - len(small)]
    if not _has_loop(dtype) or not math.prod(shape) or not math.prod(small):
        return None
    fields = {"padded": int(windows.padded), "divisor": windows.divisor, "last": int(last), "channels": lead[1] if last else 1}
    fields |= _dimensions(large, small, windows) | {"planes": lead[0] if last else math.prod(lead)}
    size = math.prod(lead) * math.prod(large)
    depth, height = ("D", "H") if back else ("OD", "OH")
    fields["block"] = _rows(fields, depth, height, size)
    tasks = -(-fields["planes"] * fields[depth] * fields[height] // fields["block"])
    out = (*lead, *(large if back else small))
    strides = layout.channels_last_strides(out) if last else layout.contiguous_strides(out)
    work = max(math.prod(lead) * math.prod(small) * math.prod(windows.kernel), size) * 2
    return _way("avg_back" if back else "avg", out, strides, dtype, fields, tasks, work)


def _mean(x: Array, small: Sizes, large: Sizes, windows: Windows, back: bool) -> Array:
    kernel, stride, padding, _, padded, divisor = windows
    count = np.asarray(divisor or divisors(large, small, kernel, stride, padding, padded), dtype=x.dtype)
    if back:
        return summed_adjoint(x / count, large, kernel, stride, padding)
    found = summed(x, small, kernel, stride, padding)
    if x.dtype.kind == "f":
        return found / count
    return np.sign(found) * np.sign(count) * (np.abs(found) // np.abs(count))  # rounds toward 0, as in C


def summed(x: Array, spots: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes) -> Array:
    """The sum of every window of (M, *S), one dimension after the other: (M, *spots)."""
    for d, count in enumerate(spots):
        out = arrays.zeros((*x.shape[: d + 1], count, *x.shape[d + 2 :]), x.dtype, arrays.device_of(x))
        for to, source in _overlaps(x.shape[d + 1], count, kernel[d], stride[d], padding[d], d + 1):
            out[to] += x[source]
        x = out
    return x


def summed_adjoint(y: Array, sizes: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes) -> Array:
    """Every number of (M, *P) added to all of its window: (M, *sizes)."""
    for d, size in enumerate(sizes):
        out = arrays.zeros((*y.shape[: d + 1], size, *y.shape[d + 2 :]), y.dtype, arrays.device_of(y))
        for source, to in _overlaps(size, y.shape[d + 1], kernel[d], stride[d], padding[d], d + 1):
            out[to] += y[source]
        y = out
    return y


def _overlaps(size: int, count: int, kernel: int, stride: int, padding: int, dim: int):
    """(which windows, which positions) for each number of a window, as slices of dimension `dim`."""
    for k in range(kernel):
        first = max(-((k - padding) // stride), 0)  # the first window whose number k is inside
        last = min((size - 1 - k + padding) // stride, count - 1)
        if first <= last:
            start = first * stride + k - padding
            lead = (slice(None),) * dim
            yield (*lead, slice(first, last + 1)), (*lead, slice(start, start + (last - first) * stride + 1, stride))


@lru_cache(maxsize=256)
def divisors(sizes: Sizes, spots: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, with_padding: bool) -> np.ndarray:
    """How many numbers each window averages: (*spots). Padding counts if asked for, but not what lies beyond it."""
    found = np.ones((), np.int64)
    for size, count, k, s, p in zip(sizes, spots, kernel, stride, padding, strict=True):
        start = np.arange(count) * s - p
        end = np.minimum(start + k, size + p)
        number = end - start if with_padding else np.minimum(end, size) - np.maximum(start, 0)
        found = found[..., None] * number
    found.flags.writeable = False  # many will look at it
    return found


def adaptive_mean(x: Array, counts: Sizes, sizes: Sizes, back: bool) -> Array:
    """The average of every adaptive window, (M, *sizes) -> (M, *counts); or `back`: every number shared among its window, the other way."""
    if all(count and size % count == 0 for count, size in zip(counts, sizes, strict=True)):  # windows that slide, after all
        width, none = tuple(size // count for count, size in zip(counts, sizes, strict=True)), (0,) * len(sizes)
        share = x.dtype.type(1 / math.prod(width))
        return summed_adjoint(x * share, sizes, width, width, none) if back else summed(x, counts, width, width, none) * share
    for d, (count, size) in enumerate(zip(counts, sizes, strict=True)):
        matrix = np.zeros((count, size), x.dtype)
        for row, window in zip(matrix, adaptive(size, count), strict=True):
            inside = window[window >= 0]
            row[inside] = 1 / len(inside)
        side = arrays.module_of(x).asarray(matrix if back else matrix.T.copy())
        x = gemm.batched(arrays.contiguous(x.swapaxes(d + 1, -1)), side).swapaxes(d + 1, -1)
    return arrays.contiguous(x)


def planes(x: Array, n: int) -> Array:
    """(*, *S) -> (M, *S) with n dimensions in S."""
    return x.reshape(math.prod(x.shape[: x.ndim - n]), *x.shape[x.ndim - n :])


def like(x: Array, found: Array, n: int) -> Array:
    """Results of planes in the shape of what they were made of; channels last if that is."""
    shape = (*x.shape[: x.ndim - n], *found.shape[1:])
    found = found.reshape(shape)
    if x.ndim != n + 2 or not layout.looks_channels_last(*arrays.view_of(x)) or 0 in shape:
        return found
    out = arrays.empty_strided(shape, layout.channels_last_strides(shape), found.dtype, arrays.device_of(found))
    arrays.write(out, found)
    return out
