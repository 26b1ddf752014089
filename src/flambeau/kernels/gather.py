"""Elements and rows picked by index: reading them, writing them, adding onto them.

Two ideas carry everything here.

*Addresses.* An element's address is its distance, in elements, from the first one. Seen through `memory`, an array of any shape and strides
is one flat stretch, and reading or writing anywhere in it is reading or writing at a list of addresses:

    gather   out = memory(x)[addresses]            scatter   memory(x)[addresses] = values
    add      memory(x)[addresses] += values, where an address that occurs twice receives both

*Rows.* Where whole slices are picked, one copy per slice beats one address per element; so a group of indices into neighbouring dimensions
becomes one index into one merged dimension (`merged`), and rows are moved as blocks.

Duplicates are treated in the order of the index: of two writes the last stays, sums are added up in that order. Every result is the same in
every run. Half precision is summed in float32 and rounded once.

Indices are int32 or int64 arrays; masks are bool arrays. Functions that change an array take it first and return nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from flambeau.kernels import arrays, layout

Array = Any
UFUNCS = {"sum": "add", "prod": "multiply", "amax": "maximum", "amin": "minimum", "mean": "add"}
ROUNDS = 4  # rows that share an index with more than this many others are summed first; see add_rows


# -- bounds ----------------------------------------------------------------------------------------------------------


def out_of_bounds(index: Array, size: int) -> int | None:
    """The first index that is not one of 0 ... size - 1; None if all are."""
    if not index.size:
        return None
    # Read as unsigned, a negative number is a huge one: one comparison finds both kinds of trespass.
    unsigned = index.view(np.uint64 if index.dtype.itemsize == 8 else np.uint32)
    if unsigned.max() < size:
        return None
    flat = index.reshape(-1)
    wrong = (flat < 0) | (flat >= size)
    return int(flat[wrong.argmax()])


def check(index: Array, size: int, dim: int, error: type[Exception] = IndexError) -> None:
    """Raise `error` if an index is not one of 0 ... size - 1."""
    bad = out_of_bounds(index, size)
    if bad is not None:
        raise error(f"index {bad} is out of bounds for dimension {dim} with size {size}")


def wrapped(index: Array, size: int, dim: int) -> Array:
    """The index with negative numbers counted from the end; IndexError for what is beyond either end."""
    if out_of_bounds(index, size) is None:
        return index
    xp = arrays.module_of(index)
    positive = xp.where(index < 0, index + size, index)
    if out_of_bounds(positive, size) is not None:
        flat = index.reshape(-1)
        bad = int(flat[((flat < -size) | (flat >= size)).argmax()])
        raise IndexError(f"index {bad} is out of bounds for dimension {dim} with size {size}")
    return positive


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
    if strides[dim] == 1:
        return index + offsets
    found = index * np.int64(strides[dim])
    found += offsets
    return found


def grid(shape: Sequence[int], strides: Sequence[int], xp=np) -> Array:
    """The address of every element of a view with these strides, in the view's shape. Not to be written to."""
    shape, strides = tuple(shape), tuple(strides)
    return _small_grid(shape, strides) if xp is np and prod(shape) <= 4096 else _grid(shape, strides, xp)


def _grid(shape: tuple[int, ...], strides: tuple[int, ...], xp) -> Array:
    total: Any = xp.zeros((1,) * len(shape), np.int64)
    for d, (n, stride) in enumerate(zip(shape, strides, strict=True)):
        if n != 1:
            total = total + (xp.arange(n, dtype=np.int64) * stride).reshape((n,) + (1,) * (len(shape) - d - 1))
    return total


@lru_cache(maxsize=512)  # a loop asks for the same few shapes again and again
def _small_grid(shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    return _grid(shape, strides, np)


def bits(array: Array) -> Array:
    """The array as something NumPy moves fast: bfloat16, to which it is a stranger, as 16 plain bits."""
    return array.view(np.uint16) if array.dtype.kind == "V" else array


def _in_single_precision(write):
    """Make a function that changes its first argument compute in float32 where that is float16 or bfloat16."""

    def run(array, dim, index, values, *options):
        if array.dtype.itemsize != 2 or array.dtype.kind not in "fV":
            return write(array, dim, index, values, *options)
        single = np.dtype(np.float32)
        wide = arrays.cast(array, single)
        write(wide, dim, index, arrays.cast(values, single), *options)
        arrays.write(array, wide)
        return None

    return run


# -- along one dimension: gather and scatter --------------------------------------------------------------------------


def gather(array: Array, dim: int, index: Array) -> Array:
    """out[..., j, ...] = array[..., index[..., j, ...], ...]: the index stands in dimension `dim`; both have as many dimensions."""
    return memory(array).take(addresses(array, dim, index))


def scatter(array: Array, dim: int, index: Array, values: Array) -> None:
    """array[..., index[..., j, ...], ...] = values[..., j, ...]. The values have the shape of the index, or broadcast to it."""
    memory(bits(array))[addresses(array, dim, index)] = bits(values)


def scatter_reduce(array: Array, dim: int, index: Array, values: Array, how: str, include_self: bool = True) -> None:
    """array[..., index[..., j, ...], ...] combined with values[..., j, ...]: "sum", "prod", "mean", "amax" or "amin".

    Without `include_self`, what stood where something arrives does not count. Other elements keep their value either way.
    """
    if index.size:
        _scatter_reduce(array, dim, index, values, how, include_self)


@_in_single_precision
def _scatter_reduce(array, dim, index, values, how, include_self):
    xp = arrays.module_of(array)
    at = addresses(array, dim, index).reshape(-1)
    flat = memory(array)
    if not include_self:
        flat[at] = _identity(how, array.dtype)
    with np.errstate(all="ignore"):
        _combine_at(xp, UFUNCS[how], flat, at, values.reshape(-1))
    if how == "mean":
        _divide_by_counts(xp, flat, at, include_self)


def _combine_at(xp, ufunc: str, flat: Array, at: Array, values: Array) -> None:
    """The ufunc's `at`: every value counts, also where an address occurs twice."""
    if xp is np:
        getattr(np, ufunc).at(flat, at, values)
    elif not arrays.cuda().combine_at(ufunc, flat, at, arrays.contiguous(values)):
        arrays.cuda().multiply_in_rounds(flat, at, values)


def _identity(how: str, dtype: np.dtype):
    """What combines with any value to that value."""
    if how in ("sum", "mean"):
        return 0
    if how == "prod":
        return 1
    if dtype.kind == "b":
        return how == "amin"
    if dtype.kind in "iu":
        return np.iinfo(dtype).min if how == "amax" else np.iinfo(dtype).max
    return -np.inf if how == "amax" else np.inf


def _divide_by_counts(xp, flat: Array, at: Array, include_self: bool) -> None:
    """Sums made means. Integers are rounded down."""
    touched, counts = xp.unique(at, return_counts=True)
    counts = counts + int(include_self)
    sums = flat[touched]
    flat[touched] = sums // counts if flat.dtype.kind in "iu" else sums / counts.astype(flat.real.dtype)


# -- rows --------------------------------------------------------------------------------------------------------------


def take_rows(array: Array, dim: int, index: Array) -> Array:
    """The slices of `dim` at the index, whose shape takes the place of that dimension. (*a, N, *b), K -> (*a, *K, *b), contiguous."""
    if layout.is_contiguous(*arrays.view_of(array)):
        return array.take(index, axis=dim)
    return arrays.contiguous(array[(slice(None),) * dim + (index,)])


def pick_rows(array: Array, index: Array) -> Array:
    """array[index] along the first dimension, negative indices counting from the end: the most common index there is, in one call."""
    if type(array) is not np.ndarray:
        return take_rows(array, 0, wrapped(index, array.shape[0], 0))
    try:
        return array.take(index, axis=0) if array.flags.c_contiguous else arrays.contiguous(array[index])
    except IndexError as problem:  # NumPy looks at every index anyway
        raise in_pytorchs_words(problem) from None


def replace_rows(array: Array, index: Array, rows: Array) -> None:
    """array[index] = rows along the first dimension, negative indices counting from the end; `rows` broadcasts."""
    if type(array) is not np.ndarray:
        index = wrapped(index, array.shape[0], 0)
    try:
        bits(array)[index] = bits(rows)
    except IndexError as problem:
        raise in_pytorchs_words(problem) from None


def put_rows(array: Array, dim: int, index: Array, rows: Array) -> None:
    """Overwrite the slices of `dim` at the index; `rows` broadcasts to what take_rows would give."""
    bits(array)[(slice(None),) * dim + (index,)] = bits(rows)


def add_rows(array: Array, dim: int, index: Array, rows: Array) -> None:
    """Add onto the slices of `dim` at a 1-d index, every time it names them. `rows` has the shape take_rows would give."""
    if index.size and rows.size:
        _add_rows(array, dim, index, rows)


@_in_single_precision
def _add_rows(array, dim, index, rows):
    xp = arrays.module_of(array)
    target, source = xp.moveaxis(array, dim, 0), xp.moveaxis(rows, dim, 0)
    if xp is not np:
        _add_rows_at_once(xp, target, index, source)
        return
    if array.ndim == 1:
        xp.add.at(array, index, rows)
        return
    # NumPy adds blocks only where no index repeats. So: the first row for every index, then every second one, ... Where an index repeats
    # more often than there are rounds, its remaining rows are summed at once. (4096 rows of 128 into 10,000: 2.5 ms, add.at 10.8.)
    order = xp.argsort(index, kind="stable")
    ordered = index[order]
    first = xp.flatnonzero(xp.concatenate((xp.ones(1, bool), ordered[1:] != ordered[:-1])))
    if first.size == index.size:
        target[index] += source
        return
    count = xp.diff(first, append=index.size)
    occurrence = xp.arange(index.size) - xp.repeat(first, count)
    for k in range(min(int(count.max()), ROUNDS)):
        chosen = order[occurrence == k]
        target[index[chosen]] += source[chosen]
    for group in xp.flatnonzero(count > ROUNDS):
        members = order[first[group] + ROUNDS : first[group] + count[group]]
        target[index[members[0]]] += source[members].sum(axis=0, dtype=source.dtype)


def _add_rows_at_once(xp, target: Array, index: Array, rows: Array) -> None:
    """On a GPU: one thread per element."""
    shape, (step, *steps) = arrays.view_of(target)
    if layout.is_contiguous(shape, (step, *steps)):
        arrays.cuda().add_rows(target, index, rows)
        return
    at = index.reshape(-1, *(1,) * (len(shape) - 1)) * np.int64(step) + grid(shape[1:], steps, xp)
    _combine_at(xp, "add", memory(target), at.reshape(-1), rows.reshape(-1))


# -- x[indices] ----------------------------------------------------------------------------------------------------------


def read(array: Array, indices: Sequence[Array | None]) -> Array:
    """array[indices], a fresh array. An entry per dimension from the first on: None keeps it, integers pick in it, a mask of n dimensions
    answers for n. The picked dimensions become one group, where they stood if they were neighbours, else in front."""
    picks = spelled(array, indices)
    run = merged(array, picks)
    if run is not None:
        return take_rows(*run)
    return memory(array).take(_picked_addresses(array, picks))


def read_simply(array: np.ndarray, indices: Sequence[Array | None]) -> np.ndarray | None:
    """`read` for the most common indices into a contiguous array; None for others. What NumPy does in one call is left to it."""
    first = indices[0]
    if first is None or not array.flags.c_contiguous or not first.flags.c_contiguous:
        return None
    if len(indices) == 1:
        if first.dtype.kind == "i":
            return pick_rows(array, first)
        return array.reshape(-1).take(true_places(first)) if first.shape == array.shape else None
    for entry in indices:
        # Beyond this many elements, adding up addresses first is faster (1 M elements of a matrix: 9 ms, NumPy's own 28).
        if entry is None or entry.dtype.kind != "i" or entry.size > 4096 or not entry.flags.c_contiguous:
            return None
    try:
        return arrays.contiguous(array[tuple(indices)])
    except IndexError as problem:
        raise in_pytorchs_words(problem) from None


def write(array: Array, indices: Sequence[Array | None], values: Array, accumulate: bool = False) -> None:
    """array[indices] = values, or += values. The values must broadcast to the shape that `read` gives: RuntimeError otherwise."""
    if type(array) is np.ndarray and np.may_share_memory(array, values):
        values = arrays.copy(values)
    picks = spelled(array, indices)
    run = merged(array, picks)
    if run is not None:
        rows, dim, number = run
        shape = (*rows.shape[:dim], *number.shape, *rows.shape[dim + 1 :])
        values = _spread(values, shape)
        if not accumulate:
            put_rows(rows, dim, number, values)
            return
        flat = (*rows.shape[:dim], number.size, *rows.shape[dim + 1 :])
        add_rows(rows, dim, number.reshape(-1), values.reshape(flat))
        return
    at = _picked_addresses(array, picks)
    values = _spread(values, at.shape)
    if accumulate:
        add_rows(memory(array), 0, at.reshape(-1), values.reshape(-1))
    else:
        memory(bits(array))[at] = bits(values)


def _spread(values: Array, shape: tuple[int, ...]) -> Array:
    """The values broadcast to the shape of what they are written to."""
    try:
        return arrays.module_of(values).broadcast_to(values, shape)
    except ValueError:
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {list(values.shape)} cannot be broadcast to indexing result of shape {list(shape)}"
        ) from None


def true_places(mask: Array) -> Array:
    """Where a mask is true, counted through it in row-major order. 1-d, int64."""
    return arrays.module_of(mask).flatnonzero(mask)


def spelled(array: Array, indices: Sequence[Array | None]) -> list[Array | None]:
    """An entry per dimension: None or integers within its bounds. Masks become the indices of what they pick."""
    xp = arrays.module_of(array)
    found: list[Array | None] = []
    for entry in indices:
        if entry is None:
            found.append(None)
        elif entry.dtype.kind == "b":
            found += xp.unravel_index(true_places(entry), entry.shape) if entry.ndim else [true_places(entry)]
        else:
            dim = len(found)
            found.append(wrapped(entry.astype(np.int64, copy=False), array.shape[dim], dim))
    return found + [None] * (array.ndim - len(found))


def merged(array: Array, picks: Sequence[Array | None]) -> tuple[Array, int, Array] | None:
    """(view, dim, index): the same pick as one index into one dimension.

    None unless the picked dimensions are neighbours and lie in one run of memory.
    """
    dims = [d for d, pick in enumerate(picks) if pick is not None]
    first, last = dims[0], dims[-1]
    if len(dims) == 1:
        return array, first, picks[first]
    shape, strides = arrays.view_of(array)
    neighbours = last - first + 1 == len(dims)
    if not neighbours or any(strides[d] != strides[d + 1] * shape[d + 1] for d in dims[:-1]):
        return None
    number: Any = picks[first]
    for d in dims[1:]:
        number = number * shape[d] + picks[d]
    size = prod(shape[first : last + 1])
    new_shape, new_strides = (*shape[:first], size, *shape[last + 1 :]), (*strides[:first], *strides[last:])
    return arrays.strided_view(array, new_shape, new_strides), first, number


def _picked_addresses(array: Array, picks: Sequence[Array | None]) -> Array:
    """The address of every element that the picks name, in the shape of the result."""
    shape, strides = arrays.view_of(array)
    dims = [d for d, pick in enumerate(picks) if pick is not None]
    kept = [d for d, pick in enumerate(picks) if pick is None]
    position = dims[0] if dims[-1] - dims[0] + 1 == len(dims) else 0
    group: Any = 0
    for d in dims:
        group = group + picks[d] * np.int64(strides[d])
    after = len(kept) - position
    rest = grid([shape[d] for d in kept], [strides[d] for d in kept], arrays.module_of(array))
    rest = rest.reshape((*rest.shape[:position], *(1,) * group.ndim, *rest.shape[position:]))
    return group.reshape(*group.shape, *(1,) * after) + rest
