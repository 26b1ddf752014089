"""Cross entropy on arrays: what a GPU does at once, and what targets may be. On the CPU it is made of loops: see ops/cross_entropy.py.

What is found is kept in a room (N + 1, 3): for each row its loss, its maximum and sum(exp(x - maximum)); then how many rows count.
"""

from __future__ import annotations

from flambeau import dtypes
from flambeau.kernels import arrays
from flambeau.kernels.arrays import Array
from flambeau.kernels.indexing import gather, index_errors

INT64 = dtypes.int64.numpy


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
