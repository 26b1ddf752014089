"""Losses of classes on arrays: what targets may be, and the loops of ops/cross_entropy.py one after the other where there is a GPU, which nobody asks for
anything in between."""

from __future__ import annotations

from collections.abc import Sequence

from flambeau import dtypes
from flambeau.kernels import arrays
from flambeau.kernels.arrays import Array
from flambeau.kernels.indexing import gather, index_errors
from flambeau.kernels.loops.language import Loop
from flambeau.kernels.loops.run import onto_gpu, run
from flambeau.kernels.reductions.reduce import dense

INT64 = dtypes.int64.numpy


def at_once(
    loop: Loop, summaries: tuple[Loop, Loop], input: Array, target: Array, weight: Array | None, options, reduction: str, kept: dict
):
    """The loss of every sample by a loop, and their sum or mean by one of the summaries, plain and weighted; None where there is no GPU.

    `kept` gets what backward needs: the other numbers of each row, its share, and what the shares sum up to. input (N, C, *); options begin with the
    class that is ignored.
    """
    found = losses_at_once(loop, input, target, options)
    if found is None:
        return None
    loss, *kept["numbers"] = found
    (dim, labels), ignore = _beside(input.shape, target), options[0]
    if weight is not None:
        given = arrays.cast(weight, loss.dtype)
        kept["shares"] = arrays.cuda_room.at("take", given, (labels,), wrap=False, kind=index_errors.CLASS, skip=ignore)
    if reduction == "none":
        counted = loss if weight is None else arrays.module_of(loss).where(labels == ignore, 0, loss * kept["shares"])
        return dense(counted.reshape(target.shape if input.ndim > 1 else ()), input.dtype, input)
    rows = [a.reshape(1, -1) for a in (loss, labels, *([kept["shares"]] if weight is not None else []))]
    result, kept["total"] = run(summaries[weight is not None], rows, (ignore, input.shape[dim], reduction == "mean"))
    return arrays.cast(result, input.dtype).reshape(())


def losses_at_once(loop: Loop, input: Array, target: Array, options: Sequence[float]) -> tuple[Array, ...] | None:
    """What a loop finds of every sample, with 1 in place of the classes; None where there is no GPU."""
    if not arrays.on_gpu(input):
        return None
    dim, labels = _beside(input.shape, target)
    found = run(loop, (input, labels), options, dim)
    return found if isinstance(found, tuple) else (found,)


def gradients_at_once(
    loop: Loop, grad: Array, shape, input: Array | None, target: Array, options: Sequence[float], reduction: str, kept: dict
):
    """The derivative of `at_once` by its input, by a loop that may need no more of that than the shape; None where there is no GPU."""
    if not arrays.on_gpu(grad):
        return None
    out = arrays.empty_beside(grad, shape, grad.dtype)
    dim, labels = _beside(shape, target)
    each = [grad.reshape(labels.shape) if reduction == "none" else grad]
    each += [kept[name] for name in ("shares", "total") if name in kept and (name == "shares" or reduction == "mean")]
    rows = [labels] if input is None else [input, labels, *kept["numbers"]]
    onto_gpu(loop, [out], [*rows, *each], options, dim)
    return out


def _beside(shape, target: Array) -> tuple[int, Array]:
    """(dimension of the classes, the targets with one number in its place)."""
    dim = 1 if len(shape) > 1 else 0
    return dim, flat_target(target).reshape((*shape[:dim], 1, *shape[dim + 1 :]))


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
