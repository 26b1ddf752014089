"""Tensors put side by side: cat, stack and their NumPy relatives; and inserting into copies (the *_scatter family)."""

from __future__ import annotations

from math import prod

import numpy as np

from flambeau.dtypes import promote_types
from flambeau.kernels import arrays, layout
from flambeau.kernels.native import native
from flambeau.ops import specs
from flambeau.ops.declare import OPS, composite, on_arrays
from flambeau.ops.views import _select, _slice, _window, diagonal, sizes_of, whole


@on_arrays(promote=("tensors",))
def _cat(tensors, dim):
    """Arrays one after the other along a dimension; all other dimensions agree."""
    first = tensors[0]
    shape, length = list(first.shape), 0
    rows = type(first) is np.ndarray
    for a in tensors:
        length += a.shape[dim]
        rows = rows and a.flags.c_contiguous
    shape[dim] = length
    if rows and prod(shape) < len(tensors) * arrays.MANY:  # not worth several threads
        return np.concatenate(tensors, dim, out=native.empty(tuple(shape), first.dtype))
    strides = layout.contiguous_strides(tuple(shape)) if rows else joined_strides(tuple(shape), [arrays.view_of(a) for a in tensors])
    out = arrays.empty_strided(tuple(shape), strides, first.dtype, arrays.device_of(first))
    if arrays.joined(out, tensors, dim):
        return out
    at = 0
    for a in tensors:
        n = a.shape[dim]
        window = [slice(None)] * len(shape)
        window[dim] = slice(at, at + n)
        arrays.write(out[tuple(window)], a)
        at += n
    return out


def joined_strides(shape, views):
    """Channels-last inputs give a channels-last result; anything else a contiguous one."""
    if len(shape) in (4, 5) and all(layout.looks_channels_last(*v) for v in views):
        return layout.channels_last_strides(shape)
    return layout.contiguous_strides(shape)


def _cat_backward(grad, tensors_shape, dim):
    pieces, at = [], 0
    for shape in tensors_shape:
        pieces.append(_slice(grad, dim, at, at + shape[dim], 1))
        at += shape[dim]
    return pieces


_cat.derivative(tensors=_cat_backward)


@_cat.work
def _(tensors, dim):
    shape, dtype = list(tensors[0].shape), tensors[0].dtype
    shape[dim] = sum([a.shape[dim] for a in tensors])
    return _joining(tuple(shape), dtype, dim) if _are_small(tensors, prod(shape)) else None


def _are_small(tensors, size: int) -> bool:
    """Whether they are rows of memory, and so few that one thread is enough."""
    return native.lib is not None and 0 < size < len(tensors) * arrays.MANY and all([a.flags.c_contiguous for a in tensors])


def _joining(shape: tuple, dtype, dim: int):
    """A function that puts the rows of arrays, where a row is all from dimension `dim` on, side by side in an array of this shape."""
    empty, join, rows = native.empty, native.join, prod(shape[:dim])

    def joined(tensors):
        return join(tensors, empty(shape, dtype), rows)

    joined.into = lambda out, tensors: join(tensors, out, rows)
    return joined


@_cat.meta
def _(tensors, dim):
    shape = list(tensors[0].shape)
    shape[dim] = sum(a.shape[dim] for a in tensors)
    views = [arrays.view_of(a) for a in tensors]
    rows = all([layout.is_contiguous(*v) for v in views])
    return shape, tensors[0].dtype, layout.contiguous_strides(tuple(shape)) if rows else joined_strides(tuple(shape), views)


def _sequence(name: str, tensors, error: type[Exception] = RuntimeError) -> list:
    """The tensors as a list; TypeError unless they are some, `error` if there are none."""
    if not isinstance(tensors, (list, tuple)):
        raise TypeError(f"{name}(): argument 'tensors' (position 1) must be tuple of Tensors, not {type(tensors).__name__}")
    for i, t in enumerate(tensors):
        if not hasattr(t, "_array"):
            raise TypeError(f"expected Tensor as element {i} in argument 0, but got {type(t).__name__}")
    if not tensors:
        raise error(f"{name} expects a non-empty TensorList: expected a non-empty list of Tensors")
    return list(tensors)


@composite(method=False, out="cast or TypeError apart", aliases=("concat", "concatenate"), autocast="cpu widest")
def cat(tensors, dim=0):
    """Tensors one after the other along `dim`. Their other dimensions must agree; an empty 1-d tensor is skipped."""
    tensors = _sequence("cat", tensors, ValueError)
    shapes = [tuple(t.shape) for t in tensors]
    if () in shapes:
        raise RuntimeError(f"zero-dimensional tensor (at position {shapes.index(())}) cannot be concatenated. Try torch.stack")
    if (0,) in shapes:
        tensors, shapes = _without_empty(tensors)
    first = shapes[0]
    dim = layout.wrap_dim(whole(dim), len(first)) if first != (0,) else 0
    for i, shape in enumerate(shapes):
        if shape != first and (len(shape) != len(first) or shape[:dim] + shape[dim + 1 :] != first[:dim] + first[dim + 1 :]):
            if len(shape) != len(first):
                raise RuntimeError(f"Tensors must have same number of dimensions, found {first} and {shape}")
            raise RuntimeError(f"Sizes of tensors must match except in dimension {dim}: number {i} is {shape}, the first {first}")
    return _cat(tensors, dim)


def _without_empty(tensors) -> tuple[list, list]:
    """The tensors that are not empty and 1-d, and their shapes. Those that are still have a say in the dtype."""
    common = tensors[0].dtype
    for t in tensors:
        common = promote_types(common, t.dtype)
    real = [t for t in tensors if t.shape != (0,)] or tensors
    return [t.to(common) for t in real], [tuple(t.shape) for t in real]


@on_arrays(promote=("tensors",))
def _stack(tensors, dim):
    """Arrays of one shape side by side along a new dimension."""
    first = tensors[0]
    shape = (*first.shape[:dim], len(tensors), *first.shape[dim:])
    if first.ndim in (4, 5) and dim < first.ndim and layout.looks_channels_last(*arrays.view_of(first)):
        out = arrays.empty_strided(shape, _stacked_strides(tensors, dim), first.dtype, arrays.device_of(first))
    else:
        out = arrays.empty_beside(first, shape, first.dtype)
    if arrays.joined(out, tensors, dim):
        return out
    before = (slice(None),) * dim
    for i, a in enumerate(tensors):
        arrays.write(out[(*before, i, ...)], a)
    return out


def _stacked_strides(tensors, dim: int):
    """Images are stacked as if they were joined along `dim`, which is then cut: what was channels last stays so."""
    first = tensors[0].shape
    joined = (*first[:dim], first[dim] * len(tensors), *first[dim + 1 :])
    strides = joined_strides(joined, [arrays.view_of(a) for a in tensors])
    return layout.view(joined, strides, (*first[:dim], len(tensors), *first[dim:]))


@_stack.work
def _(tensors, dim):
    first, n = tensors[0].shape, len(tensors)
    return _joining((*first[:dim], n, *first[dim:]), tensors[0].dtype, dim) if _are_small(tensors, n * tensors[0].size) else None


_stack.derivative(tensors=lambda grad, dim: list(grad.unbind(dim)))


@_stack.meta
def _(tensors, dim):
    first = tensors[0]
    shape = (*first.shape[:dim], len(tensors), *first.shape[dim:])
    in_kind = first.ndim in (4, 5) and dim < first.ndim and layout.looks_channels_last(*arrays.view_of(first))
    return shape, first.dtype, _stacked_strides(tensors, dim) if in_kind else layout.contiguous_strides(shape)


@on_arrays(public=False, method=False, differentiable=False)
def _stack_as(tensors, dim, shape, strides):
    """Arrays side by side along dimension `dim` of a result with this shape and these strides; nothing is copied if they lie so already."""
    found = arrays.lying_together(tensors, dim, shape, strides)
    if found is None:
        found = arrays.empty_strided(shape, strides, tensors[0].dtype, arrays.device_of(tensors[0]))
        if found.flags.c_contiguous and arrays.joined(found, tensors, dim):
            return found
        before = (slice(None),) * dim
        for i, a in enumerate(tensors):
            arrays.write(found[(*before, i, ...)], a)
    return found


_stack_as.meta(lambda tensors, dim, shape, strides: (shape, tensors[0].dtype, strides))


@composite(method=False, out="cast or TypeError apart rows", autocast="cpu widest")
def stack(tensors, dim=0):
    """Tensors of one shape put side by side along a new dimension."""
    tensors = _sequence("stack", tensors)
    shape = tuple(tensors[0].shape)
    dim = layout.wrap_dim(whole(dim), len(shape) + 1)
    for i, t in enumerate(tensors):
        if t.shape != shape:
            raise RuntimeError(f"stack expects each tensor to have one shape, found {[*shape]} first and {[*t.shape]} at number {i}")
    return _stack(tensors, dim)


@composite(method=False, out="cast or TypeError apart")
def hstack(tensors):
    """Side by side along the second dimension (the first, for 1-d tensors)."""
    tensors = [OPS["atleast_1d"](t) for t in _sequence("hstack", tensors)]
    return cat(tensors, 0 if tensors[0].dim() == 1 else 1)


@composite(method=False, out="cast or TypeError apart", aliases=("row_stack",))
def vstack(tensors):
    """One below the other along the first dimension."""
    return cat([OPS["atleast_2d"](t) for t in _sequence("vstack", tensors)], 0)


@composite(method=False, out="cast or TypeError apart")
def dstack(tensors):
    """One behind the other along the third dimension."""
    return cat([OPS["atleast_3d"](t) for t in _sequence("dstack", tensors)], 2)


@composite(method=False, out="cast or TypeError apart")
def column_stack(tensors):
    """1-d tensors as the columns of a matrix; others side by side."""
    return hstack([t.reshape(t.numel(), 1) if t.dim() <= 1 else t for t in _sequence("column_stack", tensors)])


# -- a copy with a window replaced -----------------------------------------------------------------------------------


def _replacing(name: str, window):
    """Declare the copy of a tensor in which one of its views holds something else. `window` is that view."""

    @on_arrays(name=f"_{name}")
    def replaced(input, src, args):
        shape, strides = arrays.view_of(input)
        dense = layout.is_non_overlapping_and_dense(shape, strides)
        strides = strides if dense else layout.contiguous_strides(shape)
        geometry = window.forward((shape, strides, 0), *args)
        if tuple(geometry[0]) != tuple(src.shape):
            raise RuntimeError(f"expected src of the size of that slice, {list(geometry[0])}, found {list(src.shape)}")
        out = arrays.empty_strided(shape, strides, input.dtype, arrays.device_of(input))
        arrays.write(out, input)
        arrays.write(arrays.strided_view(out, *geometry), src)
        return out

    replaced.derivative(
        input=lambda grad, src_shape, args: replaced(grad.contiguous(), grad.new_zeros(src_shape), args),
        src=lambda grad, args: window(grad.contiguous(), *args),
    )
    replaced.meta(specs.like)
    return replaced


_select_scatter = _replacing("select_scatter", _select)
_slice_scatter = _replacing("slice_scatter", _slice)
_diagonal_scatter = _replacing("diagonal_scatter", diagonal)
_as_strided_scatter = _replacing("as_strided_scatter", _window)


@composite
def select_scatter(input, src, dim, index):
    """A copy of `input` with one slice replaced by `src`."""
    return _select_scatter(input, src, (whole(dim), whole(index)))


@composite(out="same rows")
def slice_scatter(input, src, dim=0, start=None, end=None, step=1):
    """A copy of `input` with every step-th slice from start to end replaced by `src`."""
    return _slice_scatter(input, src, (whole(dim), start, end, step))


@composite
def diagonal_scatter(input, src, offset=0, dim1=0, dim2=1):
    """A copy of `input` with a diagonal replaced by `src`."""
    return _diagonal_scatter(input, src, (offset, dim1, dim2))


@composite
def as_strided_scatter(input, src, size, stride, storage_offset=None):
    """A copy of `input` with a strided window replaced by `src`."""
    if input.requires_grad and not input.is_contiguous():
        raise RuntimeError("as_strided_scatter has a derivative for contiguous inputs only. Try .contiguous()")
    size, stride = sizes_of((tuple(size),)), sizes_of((tuple(stride),))
    offset = 0 if storage_offset is None else whole(storage_offset)
    shape, strides = tuple(input.shape), input.stride()
    dense = layout.is_non_overlapping_and_dense(shape, strides)
    layout.check_as_strided(size, stride, offset, layout.storage_extent(shape, strides if dense else layout.contiguous_strides(shape)))
    return _as_strided_scatter(input, src, (size, stride, offset))
