"""Elements and rows picked by index: reading them, writing them, adding onto them.

Two ideas carry everything here.

*Addresses.* An element's address is its distance, in elements, from the first one. Seen through `memory`, an array of any shape and strides
is one flat stretch, and reading or writing anywhere in it is reading or writing at a list of addresses:

    gather   out = memory(x)[addresses]            scatter   memory(x)[addresses] = values
    add      memory(x)[addresses] += values, where an address that occurs twice receives both

*Rows.* Where whole slices are picked, one copy per slice beats one address per element; so a group of indices into neighbouring dimensions
becomes one index into one merged dimension (`located`), and rows are moved as blocks.

Duplicates are treated in the order of the index: of two writes the last stays, sums are added up in that order. Every result is the same in
every run. Half precision is summed in float32 and rounded once. In main memory this is done by the loops of templates/index_loops.py, or where they were not
compiled by adding up addresses and letting NumPy read and write there; on a GPU by the kernels of cuda/gather.py, which look at bounds
themselves and complain later.

Indices are int32 or int64 arrays; masks are bool arrays. Functions that change an array take it first and return nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from flambeau.kernels import arrays, layout
from flambeau.kernels.indexing import index_errors
from flambeau.kernels.indexing import nonzero as places
from flambeau.kernels.native import native
from flambeau.kernels.reductions import folding

Array = Any
INT64, FLOAT32 = np.dtype(np.int64), np.dtype(np.float32)
UFUNCS = {"sum": "add", "prod": "multiply", "amax": "maximum", "amin": "minimum", "mean": "add"}
LOOPS = {"put": "index.put", "add": "index.add", "multiply": "index.mul", "maximum": "index.max", "minimum": "index.min"}
MANY = 4096  # elements that are worth two loops to find those that are not zero; of bools, with which NumPy is fast, four times as many
SMALL = 256  # indices: up to here NumPy's own indexing, which looks at bounds itself, is done before a loop has been started


# -- bounds ----------------------------------------------------------------------------------------------------------


def out_of_bounds(index: np.ndarray, size: int) -> int | None:
    """The first index that is not one of 0 ... size - 1; None if all are."""
    if not index.size:
        return None
    if index.size > 4096:
        outside = folding.fold("outside", index, tuple(range(index.ndim)), False, np.dtype(bool), shift=np.array(float(size)))
        if outside is not None and not outside:
            return None
    elif _is_within(index, size):
        return None
    wrong = (index < 0) | (index >= size)
    return int(index[wrong][0]) if wrong.any() else None


_lowest, _highest = folding.whole("min"), folding.whole("max")


def _is_within(index: np.ndarray, size: int) -> bool:
    lowest = _lowest(index)
    if lowest is not NotImplemented:  # a fifth of the time that NumPy takes
        return lowest.item() >= 0 and _highest(index).item() < size
    # Read as unsigned, a negative number is a huge one: one comparison finds both kinds of trespass.
    return np.maximum.reduce(index.view(np.uint64 if index.dtype.itemsize == 8 else np.uint32), None) < size


def check(index: Array, size: int, dim: int, kind: int = index_errors.INDEX) -> None:
    """Raise an error of index_errors.py if an index is not one of 0 ... size - 1. A GPU is not asked: its kernels look for themselves."""
    if type(index) is np.ndarray:
        bad = out_of_bounds(index, size)
        if bad is not None:
            raise index_errors.error(kind, bad, size, dim)
    elif arrays.on_gpu(index) and arrays.cuda_room.checks_at_once():
        arrays.cuda_room.spelled(index, size, dim, kind, False)


def wrapped(index: Array, size: int, dim: int, kind: int = index_errors.INDEX) -> Array:
    """The index with negative numbers counted from the end; an error for what is beyond either end."""
    if type(index) is not np.ndarray:
        return arrays.cuda_room.spelled(index, size, dim, kind)
    if out_of_bounds(index, size) is None:
        return index
    wrong = (index < -size) | (index >= size)
    if wrong.any():
        raise index_errors.error(kind, int(index[wrong][0]), size, dim)
    return np.where(index < 0, index + size, index)


def in_pytorchs_words(problem: IndexError) -> IndexError:
    """NumPy's complaint about an index, which differs from PyTorch's in one word."""
    return IndexError(str(problem).replace("axis", "dimension").replace("indexing arrays", "indexing tensors"))


# -- addresses -------------------------------------------------------------------------------------------------------


def memory(array: Array) -> Array:
    """The array's memory from its first element to its last, gaps included, as one dimension of stride 1."""
    shape, strides = arrays.view_of(array)
    return arrays.strided_view(array, (layout.storage_extent(shape, strides),), (1,))


def addresses(array: Array, dim: int, index: Array) -> Array:
    """The address of array[i, ..., index[i, ..., k], ..., k], for every place (i, ..., k) of the index; `dim` is where the index stands."""
    strides = arrays.element_strides(array)
    others = [0 if d == dim else stride for d, stride in enumerate(strides)]
    offsets = grid([1 if d == dim else n for d, n in enumerate(index.shape)], others, arrays.module_of(index))
    return (index if strides[dim] == 1 else index * np.int64(strides[dim])) + offsets


def grid(shape: Sequence[int], strides: Sequence[int], xp=np) -> Array:
    """The address of every element of a view with these strides, in the view's shape."""
    total: Any = xp.zeros((1,) * len(shape), np.int64)
    for d, (n, stride) in enumerate(zip(shape, strides, strict=True)):
        if n != 1:
            total = total + (xp.arange(n, dtype=np.int64) * stride).reshape((n,) + (1,) * (len(shape) - d - 1))
    return total


def bits(array: Array) -> Array:
    """The array as something NumPy moves fast: bfloat16 and smaller floats, to which it is a stranger, as plain bits."""
    return array.view(f"u{array.itemsize}") if array.dtype.num > 255 else array  # which are for dtypes from outside


# -- along one dimension: gather and scatter --------------------------------------------------------------------------


def gather(array: Array, dim: int, index: Array, wrap: bool = False) -> Array:
    """out[..., j, ...] = array[..., index[..., j, ...], ...]: the index stands in dimension `dim`; both have as many dimensions.

    RuntimeError, here and in all that writes along a dimension, if an index is out of bounds. `wrap`: negative ones count from the end.
    """
    if type(array) is not np.ndarray:
        return arrays.cuda_room.along("take", array, dim, index, wrap=wrap)
    if wrap:
        try:  # most often there are none, as is found out anyway
            return gather(array, dim, index)
        except RuntimeError:
            index = np.where(index < 0, index + index.dtype.type(array.shape[dim]), index)
    index = arrays.cast(index, INT64)
    run = gather_ready(array, dim, index)
    found = NotImplemented if run is None else run(array, index)
    if found is not NotImplemented:
        return found
    check(index, array.shape[dim], dim, index_errors.ALONG)
    return memory(array).take(addresses(array, dim, index))


def gather_ready(array: np.ndarray, dim: int, index: np.ndarray):
    """What `gather` does with arrays like these, as a function of them; None where there is more to it than one loop."""
    loop = native.kernel("index.take")
    if loop is native.not_compiled or index.dtype != INT64 or not index.size or array.ndim != index.ndim or not array.ndim:
        return None
    shape, size, dtype, into = index.shape, array.shape[dim], array.dtype, loop.into
    lines, steps = tuple([1 if d == dim else n for d, n in enumerate(shape)]), arrays.element_strides(array)
    numbers, empty, view, zeros = (array.strides[dim], size), native.empty, native.strided_view, np.zeros

    def run(array, index):
        out, strayed = empty(shape, dtype), zeros((), INT64)
        done = into(out, view(array, lines, steps, 0), index, strayed, *numbers)
        if strayed:
            check(index, size, dim, index_errors.ALONG)
        return done if done is NotImplemented else out

    return run


def combine_ready(how: str, array: np.ndarray, dim: int, index: np.ndarray, values: np.ndarray):
    """What `scatter` ("put") or `scatter_reduce` does with arrays like these of which no two share memory, as a function of them that returns
    the first; or None."""
    if index.dtype != INT64 or not array.ndim or array.ndim != index.ndim or values.ndim not in (0, array.ndim):
        return None
    return _combiner(how, dim, array.shape, array.strides, array.dtype, index.shape, index.strides, values.shape, values.strides)


@lru_cache(1024)
def _combiner(how: str, dim: int, shape, strides, dtype: np.dtype, picked, index_strides, given, given_strides):
    """The same for arrays of these shapes, and strides in bytes."""
    loop = native.kernel(LOOPS[UFUNCS.get(how, how)])
    if loop is native.not_compiled or how == "mean" or (_is_half(dtype) and how != "put") or 0 in picked:
        return None
    size, lines, item = shape[dim], _without(dim, picked), dtype.itemsize
    array_steps, value_steps = (tuple([s // item for s in _without(dim, of)]) for of in (strides, given_strides or (0,) * len(shape)))
    index_steps = tuple([s // 8 for s in _without(dim, index_strides)])
    numbers = picked[dim], strides[dim], index_strides[dim], given_strides[dim] if given else 0, size
    into, view, zeros = loop.into, native.strided_view, np.zeros

    def run(array, index, values):
        strayed = zeros((), INT64)
        seen = view(array, lines, array_steps, 0), view(index, lines, index_steps, 0), view(values, lines, value_steps, 0)
        done = into(*seen, strayed, *numbers)
        if strayed:
            check(index, size, dim, index_errors.ALONG)
        return done if done is NotImplemented else array

    return run


def _without(dim: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    return (*sizes[:dim], *sizes[dim + 1 :])


def scatter(array: Array, dim: int, index: Array, values: Array) -> None:
    """array[..., index[..., j, ...], ...] = values[..., j, ...]. The values have the shape of the index, or none: one for all."""
    _combine("put", array, dim, index, values)


def scatter_reduce(
    array: Array, dim: int, index: Array, values: Array, how: str, include_self: bool = True, stepwise: bool = False
) -> None:
    """array[..., index[..., j, ...], ...] combined with values[..., j, ...]: "sum", "prod", "mean", "amax" or "amin".

    Without `include_self`, what stood where something arrives does not count. Other elements keep their value either way. Half precision is
    rounded at the end, or on the CPU after every value: `stepwise`.
    """
    if not index.size:
        return
    if (
        _is_half(array.dtype)
        and not (stepwise and type(array) is np.ndarray)
        and (type(array) is np.ndarray or how == "mean" or not include_self)
    ):
        wide = arrays.cast(array, FLOAT32)
        scatter_reduce(wide, dim, index, arrays.cast(values, FLOAT32), "sum" if how == "mean" else how, include_self)
        arrays.write(array, wide)
        if how == "mean":  # of the rounded sum: PyTorch divides what it has stored
            _divide_by_counts(array, dim, index, include_self)
        return
    if not include_self:
        scatter(array, dim, index, arrays.number(_identity(how, array.dtype), array, array.dtype))
    _combine(UFUNCS[how], array, dim, index, values)
    if how == "mean":
        _divide_by_counts(array, dim, index, include_self)


def _is_half(dtype: np.dtype) -> bool:
    return dtype.itemsize == 2 and dtype.kind in "fV"


def _combine(how: str, array: Array, dim: int, index: Array, values: Array) -> None:
    """array[..., index[..., j, ...], ...] combined with values[..., j, ...] by a ufunc ("put": replaced by it), in the order of the index."""
    if type(array) is not np.ndarray:
        arrays.cuda_room.along(how, array, dim, index, values)
        return
    if arrays.may_overlap(array, values):
        values = arrays.copy(values)
    index = arrays.cast(index, INT64)
    run = combine_ready(how, array, dim, index, values)
    if run is not None and run(array, index, values) is not NotImplemented:
        return
    check(index, array.shape[dim], dim, index_errors.ALONG)
    at = addresses(array, dim, index)
    if how == "put":
        memory(bits(array))[at] = bits(values)
        return
    flat, at, values = memory(array), at.reshape(-1), np.broadcast_to(values, at.shape).reshape(-1)
    with np.errstate(all="ignore"):
        getattr(np, how).at(flat, at, values)


def _identity(how: str, dtype: np.dtype):
    """What combines with any value to that value."""
    if how in ("sum", "mean", "prod"):
        return int(how == "prod")
    if dtype.kind in "iu":
        return np.iinfo(dtype).min if how == "amax" else np.iinfo(dtype).max
    return how == "amin" if dtype.kind == "b" else np.inf if how == "amin" else -np.inf


def _divide_by_counts(array: Array, dim: int, index: Array, include_self: bool) -> None:
    """Sums made means. Integers are rounded down."""
    counts = arrays.zeros(array.shape, INT64, arrays.device_of(array))
    _combine("add", counts, dim, index, arrays.number(1, array, INT64))
    counts = counts + 1 if include_self else counts.clip(1)
    array[...] = array // counts if array.dtype.kind in "iu" else array / counts.astype(array.real.dtype)


# -- rows --------------------------------------------------------------------------------------------------------------


def spread(index: Array, dim: int, shape: Sequence[int]) -> Array:
    """A 1-d index of slices as an index for every element of them: (K) -> (*a, K, *b) for a shape (*a, N, *b), without a copy."""
    zeros = [0] * len(shape)
    zeros[dim] = index.strides[0] // index.itemsize
    return arrays.strided_view(index, (*shape[:dim], index.size, *shape[dim + 1 :]), zeros)


def take_rows(array: Array, dim: int, index: Array, kind: int = index_errors.INDEX, unseen: bool = False) -> Array:
    """The slices of `dim` at the index, whose shape takes the place of that dimension. (*a, N, *b), K -> (*a, *K, *b), contiguous.

    The index has been checked, but on a GPU or if it is `unseen`: `kind` is the error that it leads to then."""
    if type(array) is not np.ndarray:
        if unseen:
            check(index, array.shape[dim], dim, kind)
        return arrays.cuda_room.at("take", array, (*(None,) * dim, index), wrap=False, kind=kind)
    if native.lib is not None and index.size > SMALL:
        shape, width, index = (
            (*array.shape[:dim], *index.shape, *array.shape[dim + 1 :]),
            prod(array.shape[dim + 1 :]),
            arrays.cast(index, INT64),
        )
        run = rows_ready(array, dim, index, kind)
        found = NotImplemented if run is None else run(array, index)
        if found is not NotImplemented:
            return found
        index = index.reshape(-1)
        if width > 1 and array.size and array[(0,) * (dim + 1)].flags.c_contiguous:
            out, strayed = native.empty((*array.shape[:dim], index.size, width), array.dtype), np.zeros((), INT64)
            first = array[(slice(None),) * dim + (slice(1),) + (0,) * (array.ndim - dim - 1)]  # of every line
            numbers = width, width * array.itemsize, array.strides[dim], array.shape[dim]
            done = native.kernel("index.rows").into(out[..., 0], first, index, strayed, *numbers)
            if strayed:
                check(index, array.shape[dim], dim, kind)
            if done is not NotImplemented:
                return out.reshape(shape)
        if unseen:
            check(index, array.shape[dim], dim, kind)
        return gather(array, dim, spread(index, dim, array.shape)).reshape(shape)
    if unseen:
        check(index, array.shape[dim], dim, kind)
    if array.flags.c_contiguous:
        return array.take(index, axis=dim)
    return arrays.contiguous(array[(slice(None),) * dim + (index,)])


def rows_ready(array: np.ndarray, dim: int, index: np.ndarray, kind: int = index_errors.INDEX):
    """What `take_rows` does with a table and an index like these, not seen before, as a function of them; or None."""
    if index.dtype != INT64 or dim or not array.flags.c_contiguous or not index.flags.c_contiguous:
        return None
    return _table_reader(array.shape, array.dtype, index.shape, kind)


@lru_cache(1024)
def _table_reader(table: tuple[int, ...], dtype: np.dtype, picked: tuple[int, ...], kind: int):
    loop, size, width, count = native.kernel("index.rows"), table[0], prod(table[1:]), (prod(picked),)
    if loop is native.not_compiled or not size or width < 2 or not count[0]:
        return None
    shape, line = (*picked, *table[1:]), width * dtype.itemsize
    numbers = width, line, line, size
    into, empty, view, zeros = loop.into, native.empty, native.strided_view, np.zeros

    def run(array, index):
        out, strayed = empty(shape, dtype), zeros((), INT64)
        done = into(view(out, count, (width,), 0), view(array, count, (0,), 0), view(index, count, (1,), 0), strayed, *numbers)
        if strayed:
            check(index, size, 0, kind)
        return done if done is NotImplemented else out

    return run


def pick_rows(array: Array, index: Array) -> Array:
    """array[index] along the first dimension, negative indices counting from the end: the most common index there is."""
    if type(array) is not np.ndarray:
        return arrays.cuda_room.at("take", array, (index,))
    if index.size > SMALL:
        return take_rows(array, 0, wrapped(index, array.shape[0], 0))
    try:
        return array.take(index, axis=0) if array.flags.c_contiguous else arrays.contiguous(array[index])
    except IndexError as problem:  # NumPy looks at every index anyway
        raise in_pytorchs_words(problem) from None


def replace_rows(array: Array, index: Array, rows: Array) -> None:
    """array[index] = rows along the first dimension, negative indices counting from the end; `rows` broadcasts."""
    if type(array) is not np.ndarray:
        arrays.cuda_room.at("put", array, (index,), rows)
        return
    if index.size > SMALL:
        put_rows(array, 0, wrapped(index, array.shape[0], 0), rows)
        return
    try:
        bits(array)[index] = bits(rows)
    except IndexError as problem:
        raise in_pytorchs_words(problem) from None


def increase_rows(array: np.ndarray, index: np.ndarray, rows: np.ndarray) -> None:
    """array[index] += rows along the first dimension, every time it names them; otherwise as `replace_rows`."""
    add_rows(array, 0, wrapped(arrays.cast(index, INT64), array.shape[0], 0), rows)


def put_rows(array: Array, dim: int, index: Array, rows: Array) -> None:
    """Overwrite the slices of `dim` at the index; `rows` broadcasts to what take_rows would give."""
    if type(array) is not np.ndarray:
        arrays.cuda_room.at("put", array, (*(None,) * dim, index), rows, wrap=False)
    elif native.lib is not None and index.size > SMALL:
        _combine("put", array, dim, spread(index.reshape(-1), dim, array.shape), _flat_rows(array, dim, index, rows))
    else:
        bits(array)[(slice(None),) * dim + (index,)] = bits(rows)


def add_rows(array: Array, dim: int, index: Array, rows: Array, kind: int = index_errors.INDEX, skip: int | None = None) -> None:
    """Add onto the slices of `dim` at the index, every time it names them; `rows` broadcasts to what take_rows would give.

    `skip` is an index whose rows are left out."""
    if not index.size or not array.size:
        return
    if type(array) is not np.ndarray:
        left = {} if skip is None else {"skip": skip}
        arrays.cuda_room.at("add", array, (*(None,) * dim, index), rows, wrap=False, kind=kind, **left)
        return
    index, rows = index.reshape(-1), _flat_rows(array, dim, index, rows)
    if skip is not None and (index == skip).any():
        used = index != skip
        index, rows = index[used], rows[(slice(None),) * dim + (used,)]
        if not index.size:
            return
    if _is_half(array.dtype):
        wide = arrays.cast(array, FLOAT32)
        add_rows(wide, dim, index, arrays.cast(rows, FLOAT32))
        arrays.write(array, wide)
        return
    _combine("add", array, dim, spread(index, dim, array.shape), rows)


def _flat_rows(array: Array, dim: int, index: Array, rows: Array) -> Array:
    """Rows for an index of any shape as rows for the flat index; RuntimeError if they do not broadcast to what take_rows would give."""
    shape = (*array.shape[:dim], *index.shape, *array.shape[dim + 1 :])
    if rows.shape != shape and rows.ndim:
        try:
            rows = np.broadcast_to(rows, shape)
        except ValueError:
            found = f"value tensor of shape {list(rows.shape)} cannot be broadcast to {list(shape)}, the shape of what is written"
            raise RuntimeError(f"shape mismatch: {found}") from None
    return rows.reshape(*array.shape[:dim], index.size, *array.shape[dim + 1 :]) if rows.ndim and index.ndim != 1 else rows


# -- x[indices] ----------------------------------------------------------------------------------------------------------


def read(array: Array, indices: Sequence[Array | None]) -> Array:
    """array[indices], a fresh array. An entry per dimension from the first on: None keeps it, integers pick in it, a mask of n dimensions
    answers for n. The picked dimensions become one group, where they stood if they were neighbours, else in front."""
    if type(array) is not np.ndarray and _all_integers(indices):
        return arrays.cuda_room.at("take", array, indices)
    return take_rows(*located(array, indices))


def _all_integers(indices: Sequence[Array | None]) -> bool:
    return not any([i is not None and i.dtype.kind == "b" for i in indices])


def read_simply(array: Array, indices: Sequence[Array | None]) -> Array | None:
    """`read` for the most common indices into a contiguous array; None for others. What NumPy does in one call is left to it."""
    first = indices[0]
    if type(array) is not np.ndarray:
        simple = array.flags.c_contiguous and _all_integers(indices) and len({i.shape for i in indices if i is not None}) == 1
        return arrays.cuda_room.at("take", array, indices) if simple else None
    if first is None and array.flags.c_contiguous and indices[-1].dtype.kind == "i" and all([i is None for i in indices[1:-1]]):
        dim = len(indices) - 1  # x[:, i]
        dense = arrays.element_strides(array) == layout.contiguous_strides(array.shape)  # also where a size is 1
        return take_rows(array, dim, wrapped(indices[-1], array.shape[dim], dim)) if dense else None
    if first is None or not array.flags.c_contiguous or not first.flags.c_contiguous:
        return None
    if len(indices) == 1:
        if first.dtype.kind == "i":
            return pick_rows(array, first)
        return take_rows(array.reshape(-1), 0, true_places(first)) if first.shape == array.shape else None
    for entry in indices:
        # Beyond this many elements, adding up addresses first is faster (1 M elements of a matrix: 9 ms, NumPy's own 28).
        if entry is None or entry.dtype.kind != "i" or entry.size > 4096 or not entry.flags.c_contiguous:
            return None
    try:
        return arrays.contiguous(array[tuple(indices)])
    except IndexError as problem:
        raise in_pytorchs_words(problem) from None


def write_simply(array: np.ndarray, indices: Sequence[Array | None], values: np.ndarray, accumulate: bool) -> bool:
    """Whether array[indices] = values (or += values) was one call of NumPy's: integers for some of the first dimensions, as many for each,
    that name few elements, and a value for each or one for all."""
    first = indices[0]
    if (
        first is None
        or not array.size
        or array.dtype.kind == "V"
        or values.size > FEW
        or first.size * prod(array.shape[len(indices) :]) > FEW
    ):
        return False
    if any([i is None or i.dtype.kind != "i" or i.shape != first.shape for i in indices]):
        return False
    if values.ndim and values.shape != first.shape + array.shape[len(indices) :]:
        return False
    try:
        if not accumulate:
            array[tuple(indices)] = values
        elif array.dtype.char in "fdil" and values.size <= SMALL:  # others it warns of, or converts
            np.add.at(array, tuple(indices), values)
        else:
            return False
    except IndexError as problem:
        raise in_pytorchs_words(problem) from None
    return True


def storing(array: np.ndarray, index: np.ndarray, number: np.ndarray) -> Callable | None:
    """store(array, index): array[index] = number, for integers that name few elements; None where it is not NumPy that does it best."""
    if index.dtype.kind != "i" or array.dtype.kind == "V" or not 0 < index.size * prod(array.shape[1:]) <= FEW:
        return None

    def store(array: np.ndarray, index: np.ndarray) -> None:
        try:
            array[index] = number
        except IndexError as problem:
            raise in_pytorchs_words(problem) from None

    return store


FEW = 4096  # elements


def write(array: Array, indices: Sequence[Array | None], values: Array, accumulate: bool = False) -> None:
    """array[indices] = values, or += values. The values must broadcast to the shape that `read` gives: RuntimeError otherwise."""
    if type(array) is not np.ndarray and _all_integers(indices):
        arrays.cuda_room.at("add" if accumulate else "put", array, indices, values)
        return
    rows, dim, index = located(array, indices)
    (add_rows if accumulate else put_rows)(rows, dim, index, values)


def true_places(mask: Array) -> Array:
    """Where a mask is true, counted through it in row-major order. 1-d, int64."""
    if type(mask) is np.ndarray and mask.size > (4 * MANY if mask.dtype.kind == "b" else MANY):
        found = places.places(arrays.contiguous(mask), (mask.size,))
        if found is not None:
            return found[0]
    return mask.reshape(-1).nonzero()[0]


def true_indices(mask: Array) -> Array:
    """Where an array is not zero: (dimensions, count), int64; one without dimensions counts as having one."""
    if type(mask) is np.ndarray and mask.size > MANY:
        found = places.places(arrays.contiguous(mask), mask.shape)
        if found is not None:
            return found
    elif type(mask) is np.ndarray and mask.ndim:
        rows = mask.nonzero()
        shape = len(rows), rows[0].size
        return np.concatenate(rows, out=native.empty((shape[0] * shape[1],), INT64)).reshape(shape)
    indices = unravelled(true_places(mask), mask.shape)
    columns = arrays.empty_beside(mask, (len(indices), indices[0].size), INT64)
    for d, index in enumerate(indices):
        columns[d] = index
    return columns


def unravelled(places: Array, shape: Sequence[int]) -> list[Array]:
    """Places counted in row-major order as an index per dimension. (NumPy's `//` by one number is 8 times as fast as its unravel_index.)"""
    found = []
    for n in reversed(shape[1:]):
        outer = places // n
        found.append(places - outer * n)
        places = outer
    return [places, *reversed(found)]


def located(array: Array, indices: Sequence[Array | None]) -> tuple[Array, int, Array]:
    """(view, dim, index): the same pick as one index into one dimension, into all of memory if need be."""
    first, entry = next((d, entry) for d, entry in enumerate(indices) if entry is not None)
    if entry.dtype.kind == "b" and entry.ndim and all(other is None for other in indices[first + 1 :]):
        view = _merged_dims(array, first, first + entry.ndim - 1)
        if view is not None:
            return view, first, true_places(entry)
    picks = spelled(array, indices)
    dims = [d for d, pick in enumerate(picks) if pick is not None]
    neighbours = dims[-1] - dims[0] + 1 == len(dims)
    view = _merged_dims(array, dims[0], dims[-1]) if neighbours else None
    if view is None:
        return memory(array), 0, _picked_addresses(array, picks, dims[0] if neighbours else 0)
    number: Any = picks[dims[0]]
    for d in dims[1:]:
        number = number * array.shape[d] + picks[d]
    return view, dims[0], number


def spelled(array: Array, indices: Sequence[Array | None]) -> list[Array | None]:
    """An entry per dimension: None or integers within its bounds. Masks become the indices of what they pick."""
    found: list[Array | None] = []
    for entry in indices:
        if entry is None:
            found.append(None)
        elif entry.dtype.kind == "b":
            found.extend(true_indices(entry))
        else:
            dim = len(found)
            found.append(wrapped(arrays.cast(entry, INT64), array.shape[dim], dim))
    return found + [None] * (array.ndim - len(found))


def _merged_dims(array: Array, first: int, last: int) -> Array | None:
    """The dimensions from `first` to `last` as one; None unless they lie in one run of memory."""
    if first == last:
        return array
    shape, strides = arrays.view_of(array)
    if any(strides[d] != strides[d + 1] * shape[d + 1] for d in range(first, last)):
        return None
    new_shape = (*shape[:first], prod(shape[first : last + 1]), *shape[last + 1 :])
    return arrays.strided_view(array, new_shape, (*strides[:first], *strides[last:]))


def _picked_addresses(array: Array, picks: Sequence[Array | None], position: int) -> Array:
    """The address of every element that the picks name, in the shape of the result, where they stand at dimension `position`."""
    shape, strides = arrays.view_of(array)
    kept = [d for d, pick in enumerate(picks) if pick is None]
    group: Any = sum(pick * np.int64(stride) for pick, stride in zip(picks, strides, strict=True) if pick is not None)
    rest = grid([shape[d] for d in kept], [strides[d] for d in kept], arrays.module_of(array))
    rest = rest.reshape((*rest.shape[:position], *(1,) * group.ndim, *rest.shape[position:]))
    return group.reshape(*group.shape, *(1,) * (len(kept) - position)) + rest
