"""Running a loop on arrays: which schedule suits how they lie, or NumPy where nothing is compiled.

    run(loop, (x, weight), (eps,), dim=-1)      the stores, fresh and C-contiguous: one array, or a tuple

"ri" operands have one shape; the row is their dimension `dim`. "i" operands (n,) repeat to that, "r" operands have 1 in its place, and so do stores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod

import numpy as np

from flambeau.kernels import arrays
from flambeau.kernels.arrays import Array
from flambeau.kernels.loops import columns, late
from flambeau.kernels.loops.evaluate import evaluate
from flambeau.kernels.loops.language import DECLARED, EACH, ROW, SHARED, Loop
from flambeau.kernels.native import native
from flambeau.kernels.reductions.reduce import dense, reduce

FEW = 32  # short rows that are worth bringing together
INLINE, BLOCK = 32768, 16384  # elements: what is not worth a second thread; what a call takes otherwise
FLOAT32 = np.dtype(np.float32)


def run(loop: Loop, operands: Sequence[Array], options: Sequence[float] = (), dim: int = -1):
    """The stores of the loop."""
    first = operands[0]
    if type(first) is np.ndarray:
        found = _usual(loop, operands, options, dim) if first.size and native.lib is not None else None
    else:
        found = _on_gpu(loop, operands, options, dim) if arrays.on_gpu(first) and first.size else None
    return _by_numpy(loop, operands, options, dim) if found is None else found


def ready(loop: Loop, operands: Sequence[np.ndarray], options: Sequence[float] = (), dim: int = -1) -> Callable | None:
    """What `run` does with arrays like these, as a function of them; None where there is more to it than one launch."""
    first = operands[0]
    kernel = compiled("rows", loop)
    if kernel is native.not_compiled or not first.size or not first.ndim or dim not in (-1, first.ndim - 1) or loop.totals:
        return None
    rows = [a for a, access in zip(operands, loop.loads, strict=True) if access == ROW]
    if not all([a.shape == first.shape and a.flags.c_contiguous for a in rows]):
        return None
    shape, width, numbers = first.shape, first.shape[-1], tuple(map(float, options))
    if len(loop.stores) > 1:
        return _ready_with_numbers(loop, kernel, first, numbers)
    if width > short_up_to(loop) or first.size < FEW * width:
        return kernel if not numbers else lambda *operands: kernel(*operands, *numbers)
    if first.size > INLINE:
        return None
    short = compiled("short", loop)

    def one(x):
        found = short(x.reshape(-1), width, *numbers)
        return found if found is NotImplemented else found.reshape(shape)

    def several(*operands):
        found = short(*[a.reshape(-1) for a in operands], width, *numbers)
        return found if found is NotImplemented else found.reshape(shape)

    return one if len(operands) == 1 else several


def _ready_with_numbers(loop: Loop, kernel: Callable, first: np.ndarray, numbers: tuple) -> Callable:
    shape, dtype, empty, count = (*first.shape[:-1], 1), first.dtype, native.empty, len(loop.stores) - 1

    def two(*operands):
        a, b = empty(shape, dtype), empty(shape, dtype)
        out = kernel(*operands, a, b, *numbers)
        return out if out is NotImplemented else (out, a, b)

    def any_number(*operands):
        made = [empty(shape, dtype) for _ in range(count)]
        out = kernel(*operands, *made, *numbers)
        return out if out is NotImplemented else (out, *made)

    return two if count == 2 else any_number


@lru_cache(None)
def compiled(schedule: str, loop: Loop) -> Callable:
    """The loop under a schedule, compiled at installation or now; or what answers NotImplemented."""
    if DECLARED.get(loop.name) is loop:
        return native.kernel(f"{schedule}.{loop.name}")
    return late.kernel(schedule, loop)


@lru_cache(None)
def short_up_to(loop: Loop) -> int:
    """Elements of a short row: the more operands, the earlier a row is long enough by itself."""
    return 0 if compiled("short", loop) is native.not_compiled else 64 // len(loop.loads)


def _usual(loop: Loop, operands: Sequence[np.ndarray], options: Sequence[float], dim: int):
    """By a compiled loop of the CPU, or None."""
    first = operands[0]
    if first.ndim and dim not in (-1, first.ndim - 1):
        return _across(loop, operands, options, dim % first.ndim)
    if loop.totals:
        return _with_totals(loop, operands, options)
    if first.flags.c_contiguous and first.ndim:
        width = first.shape[-1]
        if width <= short_up_to(loop) and first.size >= FEW * width:
            return _short(loop, operands, options)
    else:
        operands = [a if a.ndim and a.flags.c_contiguous else arrays.contiguous(a).reshape(a.shape or (1,)) for a in operands]
    return _whole_rows(loop, operands, options, first.shape)


def _whole_rows(loop: Loop, operands: Sequence[np.ndarray], options: Sequence[float], shape: tuple[int, ...]):
    """One row at a time."""
    first, numbers = operands[0], [*map(float, options)]
    made = [native.empty((*first.shape[:-1], 1), first.dtype) for _ in loop.stores[1:]]
    out = compiled("rows", loop)(*operands, *made, *numbers)
    if out is NotImplemented:
        given = [arrays.contiguous(a) if access == ROW else a for a, access in zip(operands, loop.loads, strict=True)]
        out = compiled("rows", loop)(*given, *made, *numbers)
    if out is NotImplemented:
        return None
    out = out if out.shape == shape else out.reshape(shape)
    return (out, *made) if made else out


def _short(loop: Loop, operands: Sequence[np.ndarray], options: Sequence[float]):
    """Many short rows at a time. Large work is cut into calls for whole rows."""
    (first, *others), kernel = operands, compiled("short", loop)
    if any([a.shape != first.shape or not a.flags.c_contiguous for a in others]):
        return _whole_rows(loop, operands, options, first.shape)
    flat, c, n = [a.reshape(-1) for a in operands], first.shape[-1], first.size
    numbers = c, *map(float, options)
    if n <= INLINE:
        found = kernel(*flat, *numbers)
        return None if found is NotImplemented else found.reshape(first.shape)
    out = native.empty(first.shape, first.dtype)
    flat.insert(0, out.reshape(-1))
    each = BLOCK // c * c
    whole = n // each * each
    for begin, end, length in ((0, whole, each), (whole, n, n - whole)):
        if begin < end and kernel.into(*[a[begin:end].reshape(-1, length) for a in flat], *numbers) is NotImplemented:
            return None
    return out


def _across(loop: Loop, operands: Sequence[np.ndarray], options: Sequence[float], dim: int):
    """Along a dimension that is not the last: columns side by side, or rows that are brought together first."""
    first = operands[0]
    found = side_by_side(loop, operands, options, dim)
    if found is not None:
        return found
    order = (*(d for d in range(first.ndim) if d != dim), dim)
    back = [order.index(d) for d in range(first.ndim)]
    turned = [a if access == SHARED else a.transpose(order) for a, access in zip(operands, loop.loads, strict=True)]
    found = _usual(loop, [arrays.contiguous(a) for a in turned], options, -1)
    if found is None or len(loop.stores) == 1:
        return None if found is None else arrays.contiguous(found.transpose(back))
    return tuple([arrays.contiguous(a.transpose(back)) if a.ndim == first.ndim else a for a in found])


def side_by_side(loop: Loop, operands: Sequence[np.ndarray], options: Sequence[float], dim: int):
    """The loop for columns side by side, or None where they are few, or what is read is more than such rows."""
    shape, dtype, kernel = operands[0].shape, operands[0].dtype, compiled("columns", loop)
    n, outer, inner = shape[dim], prod(shape[:dim]), prod(shape[dim + 1 :])
    if inner < columns.WIDTHS[-1] or kernel is native.not_compiled or any([a.shape != shape or a.dtype != dtype for a in operands]):
        return None
    if dtype.itemsize == 2:
        operands = [arrays.cast(a, FLOAT32) for a in operands]
    column = n * operands[0].itemsize * len(operands)
    width = next((w for w in columns.WIDTHS if w * column <= columns.NEAR), columns.WIDTHS[0])
    used = [native.empty(shape, operands[0].dtype), *map(arrays.contiguous, operands)]
    for first, count, side in ((0, inner // width, width), (inner // width * width, 1, inner % width)):
        if count * side:
            seen = [native.strided_view(a, (outer, count), (n * inner, side), first) for a in used]
            if kernel.into(*seen, n * side, n, inner, side, *map(float, options)) is NotImplemented:
                return None
    return used[0] if dtype.itemsize > 2 else arrays.cast(used[0], dtype)


def _with_totals(loop: Loop, operands: Sequence[np.ndarray], options: Sequence[float]):
    """Rows in chunks, each with totals of its own, which are added up at the end."""
    first, kernel = operands[0], compiled("rows", loop)
    n = first.shape[-1]
    for a, access in zip(operands, loop.loads, strict=True):
        if kernel is native.not_compiled or a.dtype != first.dtype or (access == SHARED and a.shape != (n,)):
            return None
    rows = first.size // n
    chunk = max(1, min(128, max(32768 // n, rows // 64)))  # enough work for a block, and few enough rows to add in their own dtype
    chunks = -(-rows // chunk)
    sums = [native.empty((chunks, n) if chunks > 1 else (n,), first.dtype) for _ in loop.totals]
    given = [a if a.flags.c_contiguous else arrays.contiguous(a) for a in operands]
    used = [native.empty(first.shape, first.dtype), *given, *sums]
    apart = {ROW: chunk * n, EACH: chunk, SHARED: 0}
    steps = [apart[access] for access in (loop.stores[0], *loop.loads)] + [n] * len(sums)
    for begin, count, each in ((0, rows // chunk, chunk), (rows // chunk, 1, rows % chunk)):
        if count and each:
            seen = [native.strided_view(a, (count,), (step,), begin * step) for a, step in zip(used, steps, strict=True)]
            if kernel.into(*seen, each * n, n, each, *map(float, options)) is NotImplemented:
                return None
    return used[0], *[reduce("sum", a, (0,), False, a.dtype) if chunks > 1 else a for a in sums]


def _on_gpu(loop: Loop, operands: Sequence[Array], options: Sequence[float], dim: int):
    """By a kernel of the GPU, or None."""
    first = operands[0]
    dim %= first.ndim or 1
    if not first.ndim or any([a.dtype != first.dtype for a in operands]):
        return None
    n, last = first.shape[dim], dim == first.ndim - 1
    order = (*(d for d in range(first.ndim) if d != dim), dim)
    given = []
    for a, access in zip(operands, loop.loads, strict=True):
        if access == SHARED and a.shape != (n,):
            return None
        given.append(arrays.contiguous(a if last or access == SHARED else a.transpose(order)))
    if loop.totals:
        return arrays.cuda_room.rows_and_totals(loop, given, options) if last else None
    stores = [arrays.empty_beside(first, (*given[0].shape[:-1], n if access == ROW else 1), first.dtype) for access in loop.stores]
    if not arrays.cuda_room.rows(loop, first.size // n, n, (stores[0], *given, *stores[1:]), options):
        return None
    found = stores if last else [arrays.contiguous(a.transpose([order.index(d) for d in range(first.ndim)])) for a in stores]
    return tuple(found) if len(found) > 1 else found[0]


def _by_numpy(loop: Loop, operands: Sequence[Array], options: Sequence[float], dim: int):
    first = operands[0]
    shape = first.shape
    given = [a if access == SHARED else _row_last(a, dim) for a, access in zip(operands, loop.loads, strict=True)]
    found = evaluate(loop, given, options)
    stores = []
    for a, access in zip(found, loop.stores, strict=True):
        a = a if access == SHARED else arrays.module_of(a).moveaxis(a, -1, dim) if shape else a.reshape(())
        stores.append(dense(a, first.dtype, first))
    return tuple(stores) if len(stores) > 1 else stores[0]


def _row_last(a: Array, dim: int) -> Array:
    return arrays.module_of(a).moveaxis(a, dim, -1) if a.ndim else a.reshape(1)  # a 0-d tensor is a row of one
