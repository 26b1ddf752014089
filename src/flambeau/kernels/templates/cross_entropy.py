"""Cross entropy on arrays: rows of logits (N, C) against one class each (N), by the loops of cross_entropy_loops.py, by those of a GPU, or by NumPy.

The loss of a row is log(sum(exp(x))) - x[target]. With smoothing s, the target has only the share 1 - s, and all classes have s / C each.
What is found is kept in a room (N + 1, 3): for each row its loss, its maximum and sum(exp(x - maximum)); then how many rows count. Maximum and sum
are all that the derivative needs, and say more than the logarithm, which at logits of 1e30 rounds to the maximum alone.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from flambeau import dtypes
from flambeau.kernels import arrays
from flambeau.kernels.arrays import Array
from flambeau.kernels.indexing import gather, index_errors
from flambeau.kernels.native import native
from flambeau.kernels.reductions.reduce import dense, unhalved

INLINE, BLOCK = 65536, 16384  # elements: what is not worth a second thread; what a call of a loop takes otherwise
NOTHING, SUM, MEAN = 0, 1, 2  # what is made of the losses of all rows
FLOAT32, FLOAT64, INT64 = dtypes.float32.numpy, dtypes.float64.numpy, dtypes.int64.numpy
NAMES = {d.numpy: d.name for d in (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)}
ROOM = {d: FLOAT64 if d == FLOAT64 else FLOAT32 for d in NAMES}
LOSSES, SUMMARIES = ({d: native.kernel(f"classes.{what}_{name}") for d, name in NAMES.items()} for what in ("losses", "summary"))
ONE = {FLOAT32: np.ones((), FLOAT32), FLOAT64: np.ones((), FLOAT64)}


def losses(x: Array, target: Array, ignore: int, smoothing: float, how: int) -> tuple[Array, Array]:
    """(sum or mean of the losses (), room (N + 1, 3)). x (N, C), target (N) of int64, both contiguous. IndexError for a target that is no class.

    The room is of float64 for that dtype, else of float32.
    """
    n, c = x.shape
    found = None
    if type(x) is np.ndarray:
        if native.lib is not None and x.size:
            found = _by_loops(x, target, ignore, smoothing, how)
    elif arrays.on_gpu(x):
        return arrays.cuda_room.class_losses(x, target, None, ignore, smoothing, "mean" if how == MEAN else "sum")
    if found is None:
        check(target, c, ignore)
        found = _by_numpy(x, target, ignore, smoothing, how)
    elif found[1][n, 0] < 0:
        check(target, c, ignore)
    return found


def _by_loops(x, target, ignore, smoothing, how):
    (n, c), dtype, view = x.shape, x.dtype, native.strided_view
    kernel, room, result = LOSSES[dtype], native.empty((n + 1, 3), ROOM[dtype]), native.empty((), dtype)
    source = x if x.flags.writeable else x.copy()  # what the launcher cuts into blocks is for it an output
    if n * c <= INLINE:
        shape, still = (n * c,), (0,)
        ran = kernel.into(
            view(source, shape, (1,), 0), view(target, shape, still, 0), view(room, shape, still, 0), view(result, shape, still, 0),
            c, ignore, smoothing, how or SUM,
        )  # fmt: skip
        return None if ran is NotImplemented else (result, room)
    if not _run(kernel, n, c, (source,), ((target, 1), (room, 3), (result, 0)), (c, ignore, smoothing, NOTHING)):
        return None
    labels = target if target.flags.writeable else target.copy()
    numbers = (view(room, (n,), (0,), 0), view(result, (n,), (0,), 0))
    return None if SUMMARIES[dtype].into(labels, *numbers, c, ignore, how) is NotImplemented else (result, room)


def _by_numpy(x, target, ignore, smoothing, how):
    xp, (n, c) = arrays.module_of(x), x.shape
    dtype, counted = x.dtype, target != ignore
    room = xp.zeros((n + 1, 3), FLOAT64 if dtype == FLOAT64 else FLOAT32)
    room[n, 0] = counted.sum()
    with np.errstate(all="ignore"):
        if x.size:
            x = unhalved(x)
            high = x.max(1, keepdims=True)
            total = xp.exp(x - high).sum(1, dtype=FLOAT64)
            behind = high[:, 0] - xp.take_along_axis(x, xp.clip(target, 0, c - 1)[:, None], 1)[:, 0]
            if smoothing:
                behind = (1 - smoothing) * behind + smoothing * (high - x).sum(1, dtype=FLOAT64) / c
            room[:n, 0], room[:n, 1], room[:n, 2] = xp.where(counted, behind + xp.log(total), 0), high[:, 0], total
        result = room[:n, 0].sum(dtype=FLOAT64)
        return dense(result / room[n, 0] if how == MEAN else result, dtype, room), room


def gradients(x: Array, target: Array, room: Array, scale: Array, total: Array, ignore: int, smoothing: float) -> Array:
    """scale / total * (softmax(x) - what the target asks for), zero in rows that are ignored. scale (N) or (), total () -> (N, C)."""
    n, c = x.shape
    if scale.dtype != room.dtype:
        scale = arrays.cast(scale, room.dtype)
    if type(x) is np.ndarray and native.lib is not None and x.size:
        out, own = native.empty((n, c), x.dtype), scale.ndim
        numbers = ((target, 1), (room, 3), (arrays.contiguous(scale) if own else scale, own), (total, 0))
        if _run(native.kernel(f"classes.gradients_{NAMES[x.dtype]}"), n, c, (out, x), numbers, (c, ignore, smoothing, own)):
            return out
    xp = arrays.module_of(x)
    if not x.size:
        return arrays.zeros((n, c), x.dtype, arrays.device_of(x))
    with np.errstate(all="ignore"):
        found = xp.exp(unhalved(x) - room[:n, 1:2]) / room[:n, 2:] - smoothing / c
        found[xp.arange(n), xp.clip(target, 0, c - 1)] -= 1 - smoothing
        found = xp.where((target == ignore)[:, None], 0, found * (scale / total).reshape(-1, 1))
    return dense(found, x.dtype, x)


def at_once(
    input: Array, target: Array, weight: Array | None, ignore: int, smoothing: float | None, reduction: str, kept: dict
) -> Array | None:
    """The whole loss in one kernel, weights and reduction included, where there is a GPU for it; else None. input (N, C, *).

    Without smoothing (None, not 0), the input are logarithms of probabilities already.
    """
    if not arrays.on_gpu(input):
        return None
    result, kept["room"] = arrays.cuda_room.class_losses(input, flat_target(target), weight, ignore, smoothing, reduction)
    return result


def gradients_at_once(grad, shape, input, target, weight, ignore: int, smoothing: float | None, reduction: str, kept: dict) -> Array | None:
    """The derivative of `at_once` by its input, in its shape; None where that was not used. The input is not needed without smoothing."""
    if not arrays.on_gpu(grad):
        return None
    return arrays.cuda_room.class_gradients(grad, shape, input, flat_target(target), weight, ignore, smoothing, reduction, kept["room"])


def flat_target(target: Array) -> Array:
    """The targets one after another, as int64."""
    target = target if target.dtype == INT64 else arrays.cast(target, INT64)
    return (target if target.flags.c_contiguous else arrays.contiguous_copy(target)).reshape(-1)


def check(target: Array, classes: int, ignore: int) -> None:
    """IndexError if a target is neither one of the classes nor `ignore`."""
    if not target.size or gather.out_of_bounds(target, classes) is None:
        return
    wrong = (target != ignore) & ((target < 0) | (target >= classes))
    if wrong.any():
        at = tuple(int(i[0]) for i in wrong.nonzero())
        where = at[0] if len(at) == 1 else at
        raise index_errors.error(index_errors.CLASS, int(target[at]), classes, where, ignore)


def _run(kernel, n: int, c: int, rows: tuple, numbers: tuple, params: tuple) -> bool:
    """Launch a loop over n rows of c elements; `numbers`: arrays with so many numbers for each row. Whether it ran."""
    view = native.strided_view
    for first, calls, m in _launches(n, c):
        shape = (calls, m * c)
        operands = [view(a, shape, (m * c, 1), first * c) for a in rows]
        for a, k in numbers:
            operands.append(view(a, shape, (m * k, 0), first * k) if k else a)
        if kernel.into(*operands, *params) is NotImplemented:
            return False
    return True


@lru_cache(maxsize=256)
def _launches(n: int, c: int) -> list[tuple[int, int, int]]:
    """How n rows of c elements are handed out: (first row, how many calls, rows of a call)."""
    if n * c <= INLINE:
        return [(0, 1, n)]
    rows = max(1, BLOCK // c)
    whole = n // rows * rows
    return [(0, n // rows, rows), *([(whole, 1, n - whole)] if whole < n else [])]
