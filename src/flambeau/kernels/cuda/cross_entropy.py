"""Cross entropy and nll_loss on a GPU: one kernel over the rows, which also adds them up where they are few, and one for the gradient.

What is kept for the gradient is what `cross_entropy.py` keeps, but for weights: these are looked up again.
"""

from __future__ import annotations

from math import prod

import cupy
import numpy as np

from flambeau import dtypes
from flambeau.kernels import arrays
from flambeau.kernels.cuda import error_notes
from flambeau.kernels.cuda.launch import compiled, empty, where_it_is
from flambeau.kernels.cuda.print_cross_entropy import print_classes
from flambeau.kernels.language.print_cuda import THREADS

ROUNDS = 4  # of rows that one block takes by itself, and adds up; more go to many blocks, and a second kernel adds them up
MOST_BLOCKS = 1 << 16
HOW = {"none": 0, "sum": 1, "mean": 2}
_ROOMS = {np.dtype(np.float64): np.dtype(np.float64)}
FLOAT32 = np.dtype(np.float32)


@where_it_is(0)
def class_losses(input, target, weight, ignore: int, smoothing: float | None, reduction: str):
    """(loss, room): of logits, or with smoothing None of logarithms of probabilities. input (N, C, *), or (C); target int64, flat, contiguous.

    The loss is (N, *) for "none", else ().
    """
    x, rows, classes, inner = _as_rows(input, smoothing is None)
    dtype, device = x.dtype, x.data.device_id
    room = empty((rows + 1, 3), _ROOMS.get(dtype, FLOAT32))
    none = reduction == "none"
    result = empty(_target_shape(input) if none else (), dtype)
    weight = None if weight is None else arrays.contiguous(arrays.cast(weight, dtype))
    weights, pointer, step = 0 if weight is None else weight.data.ptr, x.data.ptr, x.strides[1] // x.itemsize
    lanes = _lanes(classes, inner) if smoothing is not None else 1
    blocks = _blocks(rows, lanes)
    outputs = (0, result.data.ptr) if none else (result.data.ptr, 0)
    first = (*outputs, room.data.ptr, pointer, target.data.ptr, weights, error_notes.page(device), rows, classes, inner)
    if smoothing is None:
        kernel = _kernel("nll", dtype, device)
        kernel((blocks,), (THREADS,), (*first, x.strides[0] // x.itemsize, step, ignore, HOW[reduction]))
    else:
        pack = 16 // x.itemsize
        pack = pack if inner == 1 and classes % pack == 0 and pointer % 16 == 0 else 1
        kernel = _kernel("losses", dtype, device, lanes, pack)
        kernel((blocks,), (THREADS,), (*first, ignore, float(smoothing), HOW[reduction]))
    if blocks > 1:
        tail = (target.data.ptr, rows, classes, ignore, HOW[reduction])
        _kernel("fold", dtype, device)((1,), (THREADS,), (outputs[0], room.data.ptr, weights, *tail))
    error_notes.launched()
    return result, room


@where_it_is(0)
def class_gradients(grad, shape, input, target, weight, ignore: int, smoothing: float | None, reduction: str, room):
    """The derivative of class_losses by its input of this shape; the input itself is not needed where smoothing is None."""
    x, rows, classes, inner = (None, *_sizes(shape)) if input is None else _as_rows(input)
    own = reduction == "none" and rows > 1
    scale = arrays.contiguous(grad) if own and any(grad.strides) else grad
    device = scale.data.device_id
    moved = input is not None and inner == 1 and input.ndim > 2  # rows were made by moving the classes behind
    out = empty((shape[0], *shape[2:], shape[1]) if moved else shape, scale.dtype)
    if not out.size:
        return out
    weight = None if weight is None else arrays.contiguous(arrays.cast(weight, out.dtype))
    read, made = 0 if x is None else x.data.ptr, out.data.ptr
    pack = 16 // out.itemsize
    pack = pack if inner == 1 and classes % pack == 0 and read % 16 == 0 and made % 16 == 0 else 1
    total = room.data.ptr + (3 * rows + 1) * room.itemsize if reduction == "mean" else 0
    kernel = _kernel("gradients", out.dtype, device, 1, pack, out.size >= 2**31)
    kernel(
        ((out.size // pack + THREADS - 1) // THREADS,), (THREADS,),
        (made, read, target.data.ptr, room.data.ptr, 0 if weight is None else weight.data.ptr, scale.data.ptr, total,
         int(own and any(scale.strides)), out.size, classes, inner, ignore, float(smoothing or 0)),
    )  # fmt: skip
    return cupy.moveaxis(out, -1, 1) if moved else out


def _as_rows(input, any_step: bool = False):
    """(array of two or more dimensions, rows, classes, inner): see print_cross_entropy. `any_step`: classes may lie apart."""
    if input.ndim == 1:
        input = input[None]
    if input.ndim > 2 and not input.flags.c_contiguous:
        input = cupy.moveaxis(input, 1, -1)
        input = arrays.contiguous(input).reshape(prod(input.shape[:-1]), input.shape[-1])
    elif input.ndim == 2 and not any_step:
        input = arrays.contiguous(input)
    return input, *_sizes(input.shape)


def _sizes(shape) -> tuple[int, int, int]:
    """(rows, classes, inner)."""
    if len(shape) == 1:
        return 1, shape[0], 1
    inner = prod(shape[2:])
    return shape[0] * inner, shape[1], inner


def _target_shape(input) -> tuple[int, ...]:
    return (input.shape[0], *input.shape[2:]) if input.ndim > 1 else ()


def _lanes(classes: int, inner: int) -> int:
    """Threads that share a row. Where rows lie side by side, neighbouring threads take neighbouring rows."""
    return 1 if inner > 1 or classes <= 32 else 32 if classes <= 4096 else THREADS


def _blocks(rows: int, lanes: int) -> int:
    each = THREADS // lanes
    return 1 if rows <= ROUNDS * each else min((rows + each - 1) // each, MOST_BLOCKS)


def _kernel(what: str, dtype: np.dtype, device: int, *variant):
    known = dtypes.OF_NUMPY[dtype].name
    return compiled(print_classes, f"fl_classes_{what}", device, f"fl_classes_{what}", what, known, *variant)
