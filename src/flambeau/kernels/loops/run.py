"""Running a loop on arrays: which schedule suits how they lie, or NumPy where nothing is compiled.

    run(loop, (x, weight), (eps,), dim=-1)      the stores, fresh and C-contiguous: one array, or a tuple

"ri" operands have one shape; the row is their dimension `dim`. "i" operands (n,) repeat to that, "r" operands have 1 in its place, and so do stores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from math import prod

import numpy as np

from flambeau import dtypes
from flambeau.kernels import arrays
from flambeau.kernels.arrays import Array
from flambeau.kernels.loops import columns, late
from flambeau.kernels.loops.evaluate import evaluate
from flambeau.kernels.loops.language import DECLARED, EACH, ROW, SHARED, Loop
from flambeau.kernels.loops.short import FEW, is_flat, longest
from flambeau.kernels.native import native
from flambeau.kernels.reductions.reduce import dense, reduce

MANY = 128  # such rows where not all operands are rows: there is more to a call
INLINE, BLOCK = 32768, 16384  # elements: what is not worth a second thread; what a call takes otherwise
FLOAT32 = np.dtype(np.float32)


def run(loop: Loop, operands: Sequence[Array], options: Sequence[float] = (), dim: int = -1):
    """The stores of the loop."""
    first = operands[0]
    if not first.ndim:  # a 0-d tensor is a row of one
        found = run(loop, [a.reshape(1) for a in operands], options)
        return tuple([a.reshape(()) for a in found]) if isinstance(found, tuple) else found.reshape(())
    if type(first) is np.ndarray:
        found = _usual(loop, operands, options, dim) if first.size and native.lib is not None else None
    else:
        found = _on_gpu(loop, operands, options, dim) if arrays.on_gpu(first) and first.size else None
    return _by_numpy(loop, operands, options, dim) if found is None else found


def ready(loop: Loop, operands: Sequence[np.ndarray], options: Sequence[float] = (), dim: int = -1) -> Callable | None:
    """What `run` does with arrays like these, as a function of them; None where there is more to it than one launch."""
    first = operands[0]
    kernel = compiled("rows", loop)
    if kernel is native.not_compiled or not first.size or not first.ndim or dim not in (-1, first.ndim - 1) or loop.in_chunks:
        return None
    if not all(
        [a.flags.c_contiguous and (a.shape == first.shape or access != ROW) for a, access in zip(operands, loop.loads, strict=True)]
    ):
        return None
    width, numbers = first.shape[-1], tuple(map(float, options))
    if is_short(loop, first.size // width, width):
        return _ready_short(loop, first, numbers) if first.size <= INLINE else None
    if len(loop.stores) > 1:
        return _ready_with_numbers(loop, kernel, first, numbers)
    return kernel if not numbers else lambda *operands: kernel(*operands, *numbers)


def _ready_short(loop: Loop, first: np.ndarray, numbers: tuple) -> Callable:
    shape, width, kernel = first.shape, first.shape[-1], compiled("short", loop)

    def general(*operands):
        found = _in_one("short", loop, operands, numbers)
        return NotImplemented if found is None else found

    def one(x):
        found = kernel(x.reshape(-1), width, *numbers)
        return found if found is NotImplemented else found.reshape(shape)

    def several(*operands):
        found = kernel(*[a.reshape(-1) for a in operands], width, *numbers)
        return found if found is NotImplemented else found.reshape(shape)

    return general if not is_flat(loop) else one if len(loop.loads) == 1 else several


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
    """Elements of a row that is worth bringing together with others."""
    return 0 if compiled("short", loop) is native.not_compiled else longest(loop)


@lru_cache(1024)
def is_short(loop: Loop, rows: int, n: int) -> bool:
    """Whether rows are better brought together."""
    return n <= short_up_to(loop) and rows >= (FEW if is_flat(loop) else MANY)


def _usual(loop: Loop, operands: Sequence[np.ndarray], options: Sequence[float], dim: int):
    """By a compiled loop of the CPU, or None."""
    first = operands[0]
    if first.ndim and dim not in (-1, first.ndim - 1):
        return _across(loop, operands, options, dim % first.ndim)
    width = first.shape[-1]
    if is_short(loop, first.size // width, width):
        return (_flat if is_flat(loop) else partial(_in_chunks, "short"))(loop, operands, options)
    if loop.in_chunks:
        return _in_chunks("rows", loop, operands, options)
    if not first.flags.c_contiguous:
        operands = [arrays.contiguous(a) for a in operands]
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


def _flat(loop: Loop, operands: Sequence[np.ndarray], options: Sequence[float]):
    """Many short rows at a time, of nothing but rows. Large work is cut into calls for whole rows."""
    first, kernel = operands[0], compiled("short", loop)
    if any([a.shape != first.shape or not a.flags.c_contiguous for a in operands]):
        return _whole_rows(loop, [arrays.contiguous(a) for a in operands], options, first.shape)
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


def _in_chunks(schedule: str, loop: Loop, operands: Sequence[np.ndarray], options: Sequence[float]):
    """Rows in chunks. What is summed over the rows is found of each chunk, and added up at the end."""
    first = operands[0]
    if first.size <= INLINE and not loop.totals:
        found = _in_one(schedule, loop, operands, options)
        if found is not None:
            return found
    n, lead, wide = first.shape[-1], first.shape[:-1], FLOAT32 if first.itemsize == 2 else first.dtype
    chunk = _chunk(loop, first.size // n, n)
    chunks = -(-first.size // n // chunk)
    shapes = {ROW: first.shape, EACH: (*lead, 1), SHARED: (chunks, n) if chunks > 1 else (n,)}
    stores = [native.empty(shapes[a], wide if k == "wide" else first.dtype) for a, k in zip(loop.stores, loop.store_kinds, strict=True)]
    if not onto(stores, loop, operands, options, schedule):
        return _whole_rows(loop, operands, options, first.shape) if not loop.in_chunks else None
    if chunks > 1:
        stores = [reduce("sum", a, (0,), False, a.dtype) if access == SHARED else a for a, access in zip(stores, loop.stores, strict=True)]
    return tuple(stores) if len(stores) > 1 else stores[0]


def _in_one(schedule: str, loop: Loop, operands: Sequence[np.ndarray], options: Sequence[float]):
    """All rows in one chunk: what there is to say about it is known after the first time."""
    first, view = operands[0], native.strided_view
    into, numbers, sizes, dtypes, results = _one(schedule, loop, first.shape, first.dtype)
    for a, size, dtype in zip(operands, sizes, dtypes, strict=True):
        if a.size != size or a.dtype is not dtype or not a.flags.c_contiguous:
            return None
    stores = [native.empty(*result) for result in results]
    seen = [view(a, (), (), 0) for a in (stores[0], *operands, *stores[1:])]
    if into(*seen, *numbers, *options) is NotImplemented:
        return None
    return stores[0] if len(stores) == 1 else tuple(stores)


@lru_cache(1024)
def _one(schedule: str, loop: Loop, shape: tuple[int, ...], dtype: np.dtype) -> tuple:
    """(the kernel, its first numbers, sizes and dtypes of the operands, shapes and dtypes of the stores)."""
    n, size = shape[-1], prod(shape)
    of_kind = _dtypes_of(dtype)
    sizes = {ROW: size, EACH: size // n, SHARED: n}
    shapes = {ROW: shape, EACH: (*shape[:-1], 1)}
    into = getattr(compiled(schedule, loop), "into", native.not_compiled)
    stores = [(shapes[a], of_kind[k]) for a, k in zip(loop.stores, loop.store_kinds, strict=True)]
    return into, (size, n, size // n), [sizes[a] for a in loop.loads], [of_kind[k] for k in loop.kinds], stores


@lru_cache(1024)
def _chunk(loop: Loop, rows: int, n: int) -> int:
    """How many rows are a chunk."""
    if loop.totals:
        return max(1, min(128, max(INLINE // n, rows // 64)))  # enough work for a block, and few enough rows to add in their own dtype
    if rows * n <= INLINE:
        return rows
    pairs = -(-rows * n // (2 * BLOCK))  # as many for either of two threads, with next to nothing left over
    return max(1, rows // (2 * pairs))


def onto(stores: Sequence[np.ndarray], loop: Loop, operands: Sequence[np.ndarray], options: Sequence[float], schedule: str = "") -> bool:
    """Whether a compiled loop wrote the stores, which lie like fresh ones: dense, "i" ones (n,) or a row for each chunk."""
    first = operands[0]
    n = first.shape[-1]
    short = not is_flat(loop) and is_short(loop, first.size // n, n)
    kernel = native.not_compiled if native.lib is None else compiled(schedule or ("short" if short else "rows"), loop)
    if kernel is native.not_compiled:
        return False
    rows, used = first.size // n, [stores[0]]
    sizes = {ROW: first.size, EACH: rows, SHARED: n}
    for a, access, kind in zip(operands, loop.loads, loop.kinds, strict=True):
        if a.size != sizes[access] or (kind == "T" and a.dtype != first.dtype):
            return False
        used.append(a if a.flags.c_contiguous else arrays.contiguous(a))
    used += stores[1:]
    chunk, numbers = _chunk(loop, rows, n), tuple(map(float, options))
    apart = {ROW: chunk * n, EACH: chunk, SHARED: 0}
    steps = [apart[a] for a in (loop.stores[0], *loop.loads)] + [n if a == SHARED else apart[a] for a in loop.stores[1:]]
    for begin, count, each in ((0, rows // chunk, chunk), (rows // chunk, 1, rows % chunk)):
        if count and each:
            seen = [native.strided_view(a, (count,), (step,), begin * step) for a, step in zip(used, steps, strict=True)]
            if kernel.into(*seen, each * n, n, each, *numbers) is NotImplemented:
                return False
    return True


def _on_gpu(loop: Loop, operands: Sequence[Array], options: Sequence[float], dim: int):
    """By a kernel of the GPU, or None."""
    first = operands[0]
    dim %= first.ndim
    n, shape = first.shape[dim], first.shape
    of_kind = _dtypes_of(first.dtype)
    if dtypes.OF_NUMPY[first.dtype].name not in loop.dtypes:
        return None
    for a, access, kind in zip(operands, loop.loads, loop.kinds, strict=True):
        if a.dtype != of_kind[kind] or (access == SHARED and a.shape != (n,)):
            return None
    if loop.totals:
        return arrays.cuda_room.rows_and_totals(loop, list(map(arrays.contiguous, operands)), options) if dim == first.ndim - 1 else None
    one = (*shape[:dim], 1, *shape[dim + 1 :])
    stores = [
        arrays.empty_beside(first, shape if access == ROW else one, of_kind[kind])
        for access, kind in zip(loop.stores, loop.store_kinds, strict=True)
    ]
    onto_gpu(loop, stores, operands, options, dim, shape)
    return tuple(stores) if len(stores) > 1 else stores[0]


def onto_gpu(loop: Loop, stores: Sequence[Array], operands: Sequence[Array], options: Sequence[float], dim: int, shape=None) -> None:
    """Have a kernel of the GPU write the stores. Rows are of this shape, that of the first store if none is given."""
    shape = stores[0].shape if shape is None else shape
    n, inner = shape[dim], prod(shape[dim + 1 :])
    given = [a if a.flags.c_contiguous else arrays.contiguous(a) for a in operands]
    lie = arrays.cuda_room.Rows(prod(shape) // n if n else 0, n, inner, n * inner, 1 if inner > 1 else 0, inner)
    arrays.cuda_room.run_loop(loop, stores, given, options, lie)


@lru_cache(None)
def _dtypes_of(dtype: np.dtype) -> dict[str, np.dtype]:
    """The dtypes of operands, by their kinds."""
    wide = FLOAT32 if dtype.itemsize == 2 else dtype
    return {"T": dtype, "wide": wide, "i64": np.dtype(np.int64), "f64": np.dtype(np.float64)}


def _by_numpy(loop: Loop, operands: Sequence[Array], options: Sequence[float], dim: int):
    first = operands[0]
    given = [a if access == SHARED else arrays.module_of(a).moveaxis(a, dim, -1) for a, access in zip(operands, loop.loads, strict=True)]
    found = evaluate(loop, given, options)
    stores = []
    for a, access in zip(found, loop.stores, strict=True):
        a = a if access == SHARED else arrays.module_of(a).moveaxis(a, -1, dim)
        stores.append(dense(a, a.dtype, first))
    return tuple(stores) if len(stores) > 1 else stores[0]
