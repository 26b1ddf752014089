"""Cross entropy on arrays: rows of logits (N, C) against one class each (N), by the loops of class_loops.py or by NumPy.

The loss of a row is log(sum(exp(x))) - x[target]. With smoothing s, the target has only the share 1 - s, and all classes have s / C each.
What the derivative needs of a row is kept: its maximum and sum(exp(x - maximum)), two numbers. They say more than their logarithm's sum,
which at logits of 1e30 rounds to the maximum alone.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from flambeau import dtypes
from flambeau.kernels import arrays, gather, native
from flambeau.kernels.arrays import Array
from flambeau.kernels.reduce import dense, unhalved

INLINE, BLOCK = 32768, 16384  # elements: what is not worth a second thread; what a call of a loop takes otherwise
FLOAT32, FLOAT64 = dtypes.float32.numpy, dtypes.float64.numpy
NAMES = {d.numpy: d.name for d in (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)}


def losses(x: Array, target: Array, ignore: int, smoothing: float) -> tuple[Array, Array]:
    """(the loss of every row (N), the statistics of every row (N, 2)), in float32 or float64. x (N, C), target (N) of int64.

    0 where the target is `ignore`, NaN where it is no class.
    """
    n, c = x.shape
    more = FLOAT64 if x.dtype == FLOAT64 else FLOAT32
    kernel = _kernel("losses", x)
    if kernel is not native.not_compiled and n:
        found, kept = native.empty((n,), more), native.empty((n, 2), more)
        source = x if x.flags.writeable else x.copy()  # what the launcher cuts into blocks is for it an output
        if _run(kernel, n, c, (source,), ((target, 1), (found, 1), (kept, 2)), (c, ignore, smoothing)):
            return found, kept
    xp = arrays.module_of(x)
    if not x.size:
        return xp.where(target == ignore, 0, np.nan).astype(more), xp.zeros((n, 2), more)
    with np.errstate(all="ignore"):
        x = unhalved(x)
        high = x.max(1, keepdims=True)
        total = xp.exp(x - high).sum(1, dtype=FLOAT64).astype(more)
        behind = high[:, 0] - xp.take_along_axis(x, xp.clip(target, 0, c - 1)[:, None], 1)[:, 0]
        if smoothing:
            behind = (1 - smoothing) * behind + smoothing * (high - x).sum(1, dtype=FLOAT64) / c
        found = xp.where(target == ignore, 0, xp.where((target < 0) | (target >= c), np.nan, behind + xp.log(total)))
    return found.astype(more), xp.stack([high[:, 0], total], 1)


def summary(found: Array, target: Array, classes: int, ignore: int, mean: bool, dtype: np.dtype) -> tuple[Array, Array]:
    """(the mean or sum of the losses, how many count), each of shape (). IndexError for a target that is no class."""
    if type(found) is np.ndarray and native.lib is not None and found.size:
        result, total = native.empty((), dtype), native.empty((), found.dtype)
        kernel, one = native.kernel(f"classes.summary_{NAMES[dtype]}"), native.strided_view
        kernel.into(found, target, one(result, found.shape, (0,), 0), one(total, found.shape, (0,), 0), classes, ignore, mean)
        if total < 0:
            check(target, classes, ignore)
        return result, total
    check(target, classes, ignore)
    count = (target != ignore).sum()
    with np.errstate(all="ignore"):
        result = found.sum(dtype=FLOAT64) / (count if mean else 1)
    return dense(result, dtype, found), dense(count, found.dtype, found)


def gradients(x: Array, target: Array, kept: Array, scale: Array, total: Array, ignore: int, smoothing: float) -> Array:
    """scale / total * (softmax(x) - what the target asks for), zero in rows that are ignored. scale (N) or (); total () -> (N, C)."""
    n, c = x.shape
    scale, total = arrays.cast(scale, kept.dtype), arrays.cast(total, kept.dtype)
    kernel = _kernel("gradients", x)
    if kernel is not native.not_compiled and n:
        out, own = native.empty((n, c), x.dtype), scale.ndim
        numbers = ((target, 1), (kept, 2), (arrays.contiguous(scale), own), (total, 0))
        if _run(kernel, n, c, (out, x), numbers, (c, ignore, smoothing, own)):
            return out
    xp = arrays.module_of(x)
    if not x.size:
        return arrays.zeros((n, c), x.dtype, arrays.device_of(x))
    with np.errstate(all="ignore"):
        found = xp.exp(unhalved(x) - kept[:, :1]) / kept[:, 1:] - smoothing / c
        found[xp.arange(n), xp.clip(target, 0, c - 1)] -= 1 - smoothing
        found = xp.where((target == ignore)[:, None], 0, found * (scale / total).reshape(-1, 1))
    return dense(found, x.dtype, x)


def check(target: Array, classes: int, ignore: int) -> None:
    """IndexError if a target is neither one of the classes nor `ignore`."""
    if not target.size or gather.out_of_bounds(target, classes) is None:
        return
    wrong = (target != ignore) & ((target < 0) | (target >= classes))
    if wrong.any():
        at = tuple(int(i[0]) for i in wrong.nonzero())
        where = at[0] if len(at) == 1 else at
        raise IndexError(
            f"Target {int(target[at])} is out of bounds: the target at position {where} names a class, and with {classes} classes these are "
            f"0 to {classes - 1} (or ignore_index, {ignore})"
        )


def _kernel(name: str, x: Array):
    if type(x) is not np.ndarray or native.lib is None or not x.size:
        return native.not_compiled
    return native.kernel(f"classes.{name}_{NAMES[x.dtype]}")


def _run(kernel, n: int, c: int, rows: tuple, numbers: tuple, params: tuple) -> bool:
    """Launch a loop over n rows of c elements; `numbers`: arrays with so many numbers for each row. Whether it ran."""
    view = native.strided_view
    for first, calls, m in _launches(n, c):
        shape = (calls, m * c)
        operands = [view(a, shape, (m * c, 1), first * c) for a in rows]
        for a, k in numbers:
            operands.append(view(a, shape, (m * k, 0), first * k))
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
