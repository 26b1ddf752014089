"""Cross entropy: how surprised a model is by the class that was right. The loss of classifiers and language models.

    cross_entropy   of logits: -log(softmax(x)[target]), one fused loop forward and one backward
    nll_loss        of logarithms of probabilities that are there already: -x[target]

Both take inputs (N, C), (C) or (N, C, d1, d2, ...) and targets (N), () or (N, d1, d2, ...) of class numbers. Classes may weigh differently: the mean
is then that of the weights. Targets equal to `ignore_index` count nothing. cross_entropy also takes probabilities of the input's shape as targets.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

import numpy as np

from flambeau import dtypes
from flambeau.kernels import arrays
from flambeau.kernels.indexing import gather, index_errors
from flambeau.kernels.language import expr as e
from flambeau.kernels.loops import joined, run
from flambeau.kernels.loops.evaluate import evaluate
from flambeau.kernels.loops.language import Loop, declare, extent, peak, pick, position, total
from flambeau.kernels.native import native
from flambeau.kernels.reductions import folding
from flambeau.kernels.reductions.reduce import dense
from flambeau.kernels.templates import cross_entropy as classes
from flambeau.kernels.templates.cross_entropy import check, flat_target
from flambeau.ops.declare import composite, on_arrays
from flambeau.ops.loss_reduction import chosen, reduced, warn_of_probabilities
from flambeau.ops.results import Kept
from flambeau.ops.scattering import check_tensor

FLOAT32, FLOAT64, INT64 = dtypes.float32.numpy, dtypes.float64.numpy, dtypes.int64.numpy

# -- the loops ---------------------------------------------------------------------------------------------------------------


def _of_row(x, target, ignore):
    """(loss, maximum, sum(exp(x - maximum))) of a row of logits. The latter two are all that the derivative needs, and say more than the logarithm,
    which at logits of 1e30 rounds to the maximum alone."""
    high = peak(x)
    powers = total(e.exp(x - high))
    return e.where(e.eq(target, ignore), e.const(0), e.log(powers) + (high - pick(0, target))), high, powers


def _of_row_smoothed(x, target, ignore, smoothing):
    """The same where the target has only the share 1 - smoothing, and all classes have smoothing / C each."""
    high = peak(x)
    powers, behind = total(e.exp(x - high)), total(high - x) / extent
    loss = e.log(powers) + (1 - smoothing) * (high - pick(0, target)) + smoothing * behind
    return e.where(e.eq(target, ignore), e.const(0), loss), high, powers


def _of_all(loss, target, ignore, classes, mean):
    """(sum or mean of the losses, how many rows count: -1 if a target is no class)."""
    counts = ~e.eq(target, ignore)
    counted, wrong = total(e.as_T(counts)), total(e.as_T(counts & ((target < 0) | (target >= classes))))
    return total(loss) / e.where(mean > 0, counted, e.const(1.0)), e.where(wrong > 0, e.const(-1.0), counted)


def _row_back(x, target, high, powers, ignore, scale):
    """scale * (softmax(x) - one at the target)."""
    counts, factor = ~e.eq(target, ignore), scale / powers
    there = e.exp(pick(0, target) - high) * factor - scale
    return e.where(e.eq(position, target), e.where(counts, there, e.const(0)), e.where(counts, e.exp(x - high) * factor, e.const(0)))


def _row_back_smoothed(x, target, high, powers, scale, ignore, smoothing):
    """The same where all classes have their share, and each row a scale of its own."""
    counts, factor, even = ~e.eq(target, ignore), scale / powers, scale * smoothing / extent
    there = e.exp(pick(0, target) - high) * factor - even - scale * (1 - smoothing)
    elsewhere = e.exp(x - high) * factor - even
    return e.where(e.eq(position, target), e.where(counts, there, e.const(0)), e.where(counts, elsewhere, e.const(0)))


WIDE = "r:wide r:wide r:wide"
CLASS = index_errors.CLASS
LOSSES = declare(Loop("losses", _of_row, "ri r:i64", WIDE, "i64", error=CLASS))
SMOOTHED = declare(Loop("losses_smoothed", _of_row_smoothed, "ri r:i64", WIDE, "i64 T", error=CLASS))
SUMMARY = declare(Loop("losses_summary", _of_all, "ri ri:i64", "r r", "i64 i64 T", ("float32", "float64")))
BACK = declare(Loop("losses_backward", _row_back, "ri r:i64 r:wide r:wide", options="i64 T"))
BACK_SMOOTHED = declare(Loop("losses_backward_smoothed", _row_back_smoothed, f"ri r:i64 {WIDE}", options="i64 T"))


# Those of a GPU: weights are looked up before, what everything is divided by lies in memory, and a target that is no class is noted.


def _of_logs(x, target, ignore):
    """The loss of a row of logarithms."""
    return e.where(e.eq(target, ignore), e.const(0), -pick(0, target))


def _of_all_weighted(loss, target, share, ignore, classes, mean):
    """The same where every row has a share: (sum or mean of the losses, sum of the shares)."""
    counts = ~e.eq(target, ignore)
    shares = total(e.where(counts, share, e.const(0)))
    return total(e.where(counts, loss * share, e.const(0))) / e.where(mean > 0, shares, e.const(1.0)), shares


LOGS = Loop("losses_of_logs", _of_logs, "ri r:i64", "r:wide", "i64", error=CLASS)
SUMMARY_WEIGHTED = Loop("losses_summary_weighted", _of_all_weighted, "ri ri:i64 ri", "r r", "i64 i64 T", ("float32", "float64"))


SUMMARIES = SUMMARY, SUMMARY_WEIGHTED


@lru_cache(None)
def _backward_loop(of_logs: bool, weighted: bool, mean: bool) -> Loop:
    """The gradient of a row: of a share of the whole, for weights, and for the mean over what they sum up to."""

    def formula(*given):
        *found, ignore, smoothing = given
        (target, grad), rest = (found[:2], found[2:]) if of_logs else ((found[1], found[4]), found[5:])
        scale = grad * rest[0] if weighted else grad
        scale = scale / rest[-1] if mean else scale
        if of_logs:
            return e.where(e.eq(position, target) & ~e.eq(target, ignore), -scale, e.const(0))
        return _row_back_smoothed(found[0], target, found[2], found[3], scale, ignore, smoothing)

    loads = ("r:i64 r" if of_logs else "ri r:i64 r:wide r:wide r") + " r:wide" * (weighted + mean)
    return Loop(f"losses{'_of_logs' * of_logs}{'_weighted' * weighted}{'_mean' * mean}_backward", formula, loads, options="i64 T")


AT_ONCE = joined.declare(joined.Joined("mean_loss", LOSSES, SUMMARY, ("s0", "x1")))


def losses(x, target, ignore: int, smoothing: float, mean: bool):
    """(sum or mean of the losses (), room (N + 1, 3)) on the CPU. x (N, C), target (N) of int64, both contiguous. IndexError for a target that is no class.

    The room has for each row its loss, its maximum and sum(exp(x - maximum)), then how many rows count; of float64 for that dtype, else of float32.
    """
    (n, c), view = x.shape, native.strided_view
    dtype = FLOAT64 if x.dtype == FLOAT64 else FLOAT32
    memory = native.empty((3, n + 1), dtype)
    result = _at_once(x, target, ignore, mean, memory) if not smoothing and 0 < x.size <= run.INLINE else None
    if result is None:
        loop, options = (SMOOTHED, (ignore, smoothing)) if smoothing else (LOSSES, (ignore,))
        stores = [view(memory, (n, 1), (1, 1), k * (n + 1)) for k in range(3)]
        if not x.size:
            memory[...] = 0
        elif not run.onto(stores, loop, (x, target.reshape(n, 1)), options):
            for store, found in zip(stores, evaluate(loop, (x, target.reshape(n, 1)), options), strict=True):
                store[...] = found
        result, count = run.run(SUMMARY, (view(memory, (1, n), (n, 1), 0), target.reshape(1, n)), (ignore, c, mean))
        result, memory[0, n] = result.reshape(()), count[0, 0]
    room = memory.T
    if room[n, 0] < 0:
        check(target, c, ignore)
    return result if x.dtype == dtype else arrays.cast(result, x.dtype), room


def _at_once(x, target, ignore: int, mean: bool, memory):
    """The same in one call, for what is small; None where nothing is compiled."""
    (n, c), view, result = x.shape, native.strided_view, native.empty((), memory.dtype)
    found, further, count = view(memory, (), (), n + 1), view(memory, (), (), 2 * n + 2), view(memory, (), (), n)
    stores = view(memory, (), (), 0), found, further
    done = _together(result, view(x, (), (), 0), view(target, (), (), 0), *stores, count, x.size, c, n, ignore, ignore, c, mean)
    return None if done is NotImplemented else result


_together = getattr(native.kernel(f"joined.{AT_ONCE.name}"), "into", native.not_compiled)


def gradients(x, target, room, scale, ignore: int, smoothing: float):
    """scale * (softmax(x) - what the target asks for), zero in rows that are ignored. scale (N) or () -> (N, C)."""
    (n, c), view = x.shape, native.strided_view
    if scale.ndim or smoothing:
        high, powers, target = (view(a, (n, 1), (1, 1), first) for a, first in ((room, n + 1), (room, 2 * n + 2), (target, 0)))
        each = np.broadcast_to(scale.reshape(-1, 1), (n, 1)).astype(room.dtype)
        return run.run(BACK_SMOOTHED, (x, target, high, powers, each), (ignore, smoothing))
    short = c <= run.short_up_to(BACK) and n >= run.FEW
    shape, step = ((), ()) if short and 0 < x.size <= run.INLINE else ((n, 1), (1, 1))
    given = view(target, shape, step, 0), view(room, shape, step, n + 1), view(room, shape, step, 2 * n + 2)
    if not shape:
        out = native.empty(x.shape, x.dtype)
        done = _many_back(view(out, (), (), 0), view(x, (), (), 0), *given, x.size, c, n, ignore, float(scale))
        return out if done is not NotImplemented else gradients(x, target, room, np.broadcast_to(scale, (n,)), ignore, 0.0)
    out = _back(x, *given, ignore, float(scale)) if x.size and not short else NotImplemented
    return run.run(BACK, (x, *given), (ignore, float(scale))) if out is NotImplemented else out


_back = native.kernel(f"rows.{BACK.name}")
_many_back = getattr(native.kernel(f"short.{BACK.name}"), "into", native.not_compiled)


# -- the fused operation -----------------------------------------------------------------------------------------------------


@on_arrays(public=False, method=False, grad_name="NllLossBackward0")
def _cross_entropy(input, target, weight, ignore_index, reduction, smoothing, kept):
    """Cross entropy of logits and class numbers. (N, C, *), (N, *) -> (), or (N, *) for "none". Fills `kept` with what backward needs."""
    loop, options = (SMOOTHED, (ignore_index, smoothing)) if smoothing else (LOSSES, (ignore_index,))
    whole = classes.at_once(loop, SUMMARIES, input, target, weight, options, reduction, kept)
    if whole is not None:
        return whole
    rows, labels = _rows(input), flat_target(target)
    result, room = losses(rows, labels, ignore_index, smoothing, reduction == "mean")
    kept["room"], kept["total"] = room, room[-1, 0]
    if weight is None and reduction != "none":
        return result
    found = room[:-1, 0]
    if weight is not None:
        kept["shares"] = shares = weights_of(found, labels, weight, ignore_index)
        found, kept["total"] = found * shares, shares.sum()
    if reduction == "none":
        return dense(found.reshape(target.shape if input.ndim > 1 else ()), input.dtype, input)
    with np.errstate(all="ignore"):
        total = found.sum(dtype=np.float64)
        return dense(total / kept["total"] if reduction == "mean" else total, input.dtype, input)


def _rows(input):
    """The input as rows of classes: (N, C, *) -> (N *, C)."""
    if input.ndim == 2 and input.flags.c_contiguous:
        return input
    if input.ndim > 2:
        input = arrays.module_of(input).moveaxis(input, 1, -1)
    return arrays.contiguous(input).reshape(prod(input.shape[:-1]), input.shape[-1])


def weights_of(found, labels, weight, ignore_index):
    """The weight of each target's class, 0 where it is ignored; of the dtype of the losses."""
    xp = arrays.module_of(found)
    weight = arrays.cast(weight, found.dtype)
    return xp.where(labels == ignore_index, 0, weight.take(xp.clip(labels, 0, max(weight.size - 1, 0)))) if weight.size else found


@_cross_entropy.work
def _(input, target, weight, ignore_index, reduction, smoothing, kept):
    n, c = input.shape if input.ndim == 2 else (0, 0)
    plain = n and weight is None and not smoothing and reduction != "none" and input.dtype.char in "fd" and target.dtype == INT64
    if not plain or not 0 < input.size <= run.INLINE or not (input.flags.c_contiguous and target.flags.c_contiguous):
        return None
    mean, dtype, empty = reduction == "mean", input.dtype, native.empty

    def at_once(input, target, kept):
        memory = empty((3, n + 1), dtype)
        result = _at_once(input, target, ignore_index, mean, memory)
        if result is None:
            return NotImplemented
        kept["room"], kept["total"] = memory.T, memory[0, n]
        if kept["total"] < 0:
            classes.check(target, c, ignore_index)
        return result

    return at_once


@_cross_entropy.meta
def _(input, target, weight, ignore_index, reduction, smoothing, kept):
    return () if reduction != "none" or input.ndim == 1 else target.shape, input.dtype


@on_arrays(public=False, method=False, differentiable=False, shown="nll_loss_backward")
def _cross_entropy_backward(grad, input, target, weight, ignore_index, reduction, smoothing, kept):
    """The derivative by logits, in one loop."""
    loop = _backward_loop(False, "shares" in kept, reduction == "mean")
    found = classes.gradients_at_once(loop, grad, input.shape, input, target, (ignore_index, smoothing), reduction, kept)
    if found is not None:
        return found
    room, scale = kept["room"], grad if grad.dtype == kept["room"].dtype else arrays.cast(grad, kept["room"].dtype)
    if reduction == "none":
        scale = scale.reshape(-1)
    if weight is not None:
        scale = scale * kept["shares"]
    with np.errstate(all="ignore"):
        scale = scale / kept["total"] if reduction == "mean" else scale
    found = gradients(_rows(input), flat_target(target), room, scale, ignore_index, smoothing)
    if input.ndim < 3:
        return found if input.ndim == 2 else found.reshape(input.shape)
    return arrays.contiguous(np.moveaxis(found.reshape(input.shape[0], *input.shape[2:], input.shape[1]), -1, 1))


_cross_entropy_backward.meta(lambda grad, input, *rest: (input.shape, input.dtype))


def _gradient(grad, input, target, weight, ignore_index, reduction, smoothing, kept, again):
    """The same; or by operations, so that it can be differentiated again: share * (softmax - what the target asks for)."""
    if not again and kept:
        return _cross_entropy_backward(grad, input, target, weight, ignore_index, reduction, smoothing, kept)
    dim, at, counted, scale = scaled(grad, input, target, weight, ignore_index, reduction)
    asked = input.new_zeros(input.shape).scatter(dim, at, 1 - smoothing) + smoothing / max(input.shape[dim], 1)
    return ((input.softmax(dim) - asked) * scale).masked_fill(~counted, 0)


def scaled(grad, input, target, weight, ignore_index, reduction):
    """(dimension of the classes, targets there, whether they count, the gradient's share for each), all with as many dimensions as the input."""
    dim = 1 if input.dim() > 1 else 0
    at = target.to(dtypes.int64)
    at = at.unsqueeze(1) if dim else at.reshape((1,))
    counted = at != ignore_index
    at = at.masked_fill(~counted, 0)
    share = counted.to(input.dtype) if weight is None else weight[at].masked_fill(~counted, 0)
    if reduction == "none":
        grad = grad.unsqueeze(dim)
    scale = share * (grad / share.sum() if reduction == "mean" else grad)
    return dim, at, counted, scale.masked_fill(~counted, 0)  # where nothing counts, the mean's would be NaN


_cross_entropy.derivative(input=_gradient)


# -- of logits ---------------------------------------------------------------------------------------------------------------


def _node_name(
    input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0
) -> str:  # fmt: skip
    """What PyTorch's last step is called: it has a step for rows and one for images, and takes several for the rest."""
    if label_smoothing or input.shape == target.shape:
        return "AddBackward0" if input.shape != target.shape else "DivBackward1" if reduction == "mean" else "NegBackward0"
    if input.dim() < 3:
        return "NllLossBackward0"
    return "ViewBackward0" if reduction == "none" and input.dim() != 4 else "NllLoss2DBackward0"


@composite(name="nn.functional.cross_entropy", method=False, grad_name=_node_name, autocast="float32")
def cross_entropy(
    input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0
):  # fmt: skip
    """-log(softmax(input)[target]), of logits and class numbers, or of logits and probabilities of the same shape.

    label_smoothing   the share of the target that is spread evenly over all classes

    >>> F.cross_entropy(torch.zeros(2, 4), torch.tensor([0, 3]))
    tensor(1.3863)
    """
    reduction = chosen(reduction, size_average, reduce)
    check_tensor("cross_entropy_loss", "input", input)
    check_tensor("cross_entropy_loss", "target", target)
    _notice(input)
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0, found {label_smoothing}")
    if input.shape == target.shape:
        return _of_probabilities(input, target, weight, ignore_index, reduction, float(label_smoothing))
    check_target("cross_entropy", input, target, weight)
    if label_smoothing and weight is not None:
        return by_operations(input, target, weight, ignore_index, reduction, float(label_smoothing))
    return _cross_entropy(input, target, weight, ignore_index, reduction, float(label_smoothing), Kept())


@cross_entropy.each_time
def _notice(input, *rest, **options) -> None:
    wanted = "cross_entropy applies softmax itself: gradients become small and learning slow. Give it the logits, and leave softmax for predictions"
    warn_of_probabilities("cross_entropy", input, wanted)


def _of_probabilities(input, target, weight, ignore_index, reduction, smoothing):
    """-sum over the classes of weight * target * log(softmax(input)), the mean being that of the samples."""
    if target.dtype.category != dtypes.FLOAT:
        raise RuntimeError(
            f"Expected floating point type for target with class probabilities, found {target.dtype.name}: a target of the input's shape, "
            f"{tuple(input.shape)}, is read as probabilities of classes. Try target.float() for those, target.argmax(1) for "
            "one-hot rows"
        )
    if ignore_index >= 0:
        raise RuntimeError("ignore_index is not supported for floating point target: a row of zeros counts nothing")
    dim = 1 if input.dim() > 1 else 0
    n = input.shape[dim] if input.dim() else 1
    if weight is not None and (weight.dim() != 1 or weight.numel() != n):
        _refuse_weight("cross_entropy: ", weight, n)
    if smoothing:
        target = target * (1 - smoothing) + smoothing / n
    found = input.log_softmax(dim) * target
    if weight is not None:
        found = found * weight.reshape((n, *(1,) * (input.dim() - 1 - dim)))
    loss = -found.sum(dim)
    return loss.sum() / (input.numel() / n if n else float("nan")) if reduction == "mean" else reduced(loss, reduction)


def by_operations(input, target, weight, ignore_index, reduction, smoothing, kept=None):
    """The same of class numbers, which have the share 1 - smoothing, and all classes smoothing / C each: every share is weighed, the mean is that
    of the targets' weights."""
    dim = 1 if input.dim() > 1 else 0
    logs, part = input.log_softmax(dim), "sum" if reduction == "mean" else reduction
    hit = _nll_loss(logs, target, weight, ignore_index, part, Kept())
    even = -(logs if weight is None else logs * weight.reshape((-1, *(1,) * (input.dim() - 1 - dim)))).sum(dim)
    labels = target.to(dtypes.int64).reshape(even.shape)
    counted = labels != ignore_index
    loss = hit * (1 - smoothing) + reduced(even.masked_fill(~counted, 0), part) * (smoothing / input.shape[dim])
    if reduction != "mean":
        return loss
    return loss / (counted if weight is None else weight[labels.masked_fill(~counted, 0)].masked_fill(~counted, 0)).sum()


# -- of logarithms of probabilities ------------------------------------------------------------------------------------------


@on_arrays(public=False, method=False, grad_name="NllLossBackward0")
def _nll_loss(input, target, weight, ignore_index, reduction, kept):
    """-weight[target] * input[target]. (N, C, *), (N, *) -> (), or (N, *) for "none". On a GPU `kept` is filled with what backward needs."""
    whole = classes.at_once(LOGS, SUMMARIES, input, target, weight, (ignore_index,), reduction, kept)
    if whole is not None:
        return whole
    wide = FLOAT64 if input.dtype == FLOAT64 else FLOAT32
    picked = _picked(input, target, ignore_index)
    if picked is not None:
        return _sure_loss(arrays.cast(picked, wide), target, weight, reduction, input)
    xp, dim = arrays.module_of(input), 1 if input.ndim > 1 else 0
    n = input.shape[dim]
    labels = arrays.cast(target, INT64)
    check(labels, n, ignore_index)
    at = xp.expand_dims(labels, 1) if dim else labels.reshape(1)
    skipped = at == ignore_index
    share = (~skipped).astype(wide) if weight is None else weights_of(at.astype(wide), at, weight, ignore_index)
    if n:
        picked = arrays.cast(gather.gather(input, dim, arrays.contiguous(xp.where(skipped, 0, at))), wide)
    else:
        picked = share
    with np.errstate(all="ignore"):
        found = xp.where(skipped, 0, -picked * share)
        if reduction == "none":
            return dense(found.reshape(target.shape if dim else ()), input.dtype, input)
        total = found.sum(dtype=np.float64)
        return dense(total / share.sum(dtype=np.float64) if reduction == "mean" else total, input.dtype, input)


def _picked(input, target, ignore_index):
    """input[target] for every sample, in one loop: None where that does not apply, or where a target is ignored or wrong."""
    if (
        type(input) is not np.ndarray
        or native.lib is None
        or input.ndim < 2
        or target.dtype != INT64
        or not input.size
        or 0 <= ignore_index < input.shape[1]
    ):
        return None
    out, stray = native.empty(target.shape, input.dtype), np.zeros((), INT64)
    found = native.kernel("index.take").into(out, input[:, 0], target, stray, input.strides[1], input.shape[1])
    return None if found is NotImplemented or stray else out


_negative = native.kernel("neg")
_folds = {name: folding.whole(name) for name in ("sum", "mean")}


def _sure_loss(picked, target, weight, reduction, input):
    """The loss of elements that all count, in their order."""
    if weight is None and reduction != "none" and picked.size and picked.dtype == input.dtype:
        found = _folds[reduction](picked)
        if found is not NotImplemented:
            return np.negative(found, found)
    if weight is not None:
        shares = arrays.cast(weight, picked.dtype).take(target)
        picked = picked * shares
    if reduction == "none":
        return dense(-picked, input.dtype, input)
    total = -np.add.reduce(arrays.cast(picked, FLOAT64), None)
    if reduction == "mean":
        with np.errstate(all="ignore"):
            total = total / (picked.size if weight is None else np.add.reduce(arrays.cast(shares, FLOAT64), None))
    return dense(total, input.dtype, input)


@_nll_loss.work
def _(input, target, weight, ignore_index, reduction, kept):
    c = input.shape[1] if input.ndim == 2 else 0
    plain = weight is None and reduction != "none" and input.dtype.char in "fd" and target.dtype == INT64 and native.lib is not None
    if not plain or not (c and target.size and target.flags.c_contiguous) or 0 <= ignore_index < c:
        return None
    shape, dtype, step, take, fold = target.shape, input.dtype, input.strides[1], native.kernel("index.take").into, _folds[reduction]
    empty, view, rows = native.empty, native.strided_view, (arrays.element_strides(input)[0],)

    def picked(input, target, kept):
        out, stray = empty(shape, dtype), np.array(0)
        if take(out, view(input, shape, rows, 0), target, stray, step, c) is NotImplemented or stray:
            return NotImplemented  # a target is ignored, or wrong
        return _negative(fold(out))

    return picked


@_nll_loss.meta
def _(input, target, weight, ignore_index, reduction, kept):
    return () if reduction != "none" or input.ndim == 1 else target.shape, input.dtype


def _nll_gradient(grad, input_shape, target, weight, ignore_index, reduction, kept, again):
    if (
        not (again or grad.is_meta)
        and len(input_shape) == 2
        and weight is None
        and reduction != "none"
        and target.dtype is dtypes.int64
        and grad.dtype.itemsize > 2
    ):
        return _nll_backward(grad, input_shape, target, ignore_index, reduction, kept)
    like = grad.new_zeros(input_shape)
    dim, at, _, scale = scaled(grad, like, target, weight, ignore_index, reduction)
    return like.scatter(dim, at, -scale)


@on_arrays(public=False, method=False, differentiable=False, shown="nll_loss_backward")
def _nll_backward(grad, input_shape, target, ignore_index, reduction, kept):
    """The same at once, of rows of classes: each row's share of the gradient, negative, where its target is."""
    loop = _backward_loop(True, "shares" in kept, reduction == "mean")
    found = classes.gradients_at_once(loop, grad, input_shape, None, target, (ignore_index, 0.0), reduction, kept)
    if found is not None:
        return found
    xp, found = arrays.module_of(grad), arrays.empty_beside(grad, input_shape, grad.dtype)
    arrays.fill(found, 0)
    counted = target != ignore_index
    with np.errstate(all="ignore"):
        share = -grad / counted.sum() if reduction == "mean" else -grad
    found[xp.arange(len(target)), xp.where(counted, target, 0)] = xp.where(counted, share, 0).astype(grad.dtype)
    return found


_nll_loss.derivative(input=_nll_gradient)
_nll_loss.second_derivative = "zero"


@composite(name="nn.functional.nll_loss", method=False, grad_name=_node_name, autocast="float32")
def nll_loss(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean"):
    """-input[target]: the negative log likelihood, of logarithms of probabilities (log_softmax gives them) and class numbers."""
    reduction = chosen(reduction, size_average, reduce)
    check_tensor("nll_loss_nd", "input", input)
    check_tensor("nll_loss_nd", "target", target)
    _notice_nll(input)
    check_target("nll_loss", input, target, weight)
    return _nll_loss(input, target, weight, ignore_index, reduction, Kept())


@nll_loss.each_time
def _notice_nll(input, *rest, **options) -> None:
    warn_of_probabilities("nll_loss", input, "nll_loss takes logarithms of probabilities. Use log_softmax, or cross_entropy of the logits")


# -- what people get wrong ---------------------------------------------------------------------------------------------------


def check_target(name: str, input, target, weight) -> None:
    """That the target has a class number for every sample and the weight a number for every class."""
    shape, found = tuple(input.shape), tuple(target.shape)
    if not shape:
        raise ValueError(f"Expected 1 or more dimensions (got 0): {name} takes input (C), (N, C) or (N, C, d1, ...), C being the classes")
    if len(shape) == 1:
        if len(found) == 1 and found[0] != 1:
            raise ValueError(
                f"For 1D input, 1D target must have size 1, found {found[0]}. An input of shape {shape} is one sample with "
                f"{shape[0]} classes; {found[0]} samples would be ({found[0]}, C)"
            )
    elif not found:
        raise IndexError(f"{name}: the target is a single number, but the input of shape {shape} is a batch of {shape[0]}")
    elif found[0] != shape[0]:
        raise ValueError(f"Expected input batch_size ({shape[0]}) to match target batch_size ({found[0]}).{_hint(shape, found)}")
    if len(shape) < 3 and len(found) > 1:
        raise RuntimeError(
            f"0D or 1D target tensor expected, one class for each sample (multi-target not supported): {name} found input "
            f"{shape} and target {found}.{_hint(shape, found)}"
        )
    if len(shape) > 2 and found != (shape[0], *shape[2:]):
        raise RuntimeError(
            f"Expected target size {[shape[0], *shape[2:]]}, got {list(found)}: {name} takes input (N, C, d1, ...) and target (N, d1, ...), "
            f"and found input {shape}.{_hint(shape, found)}"
        )
    if input.dtype.category != dtypes.FLOAT:
        raise NotImplementedError(
            f'"{name}" not implemented for {input.dtype.name}: the input is a number for every class. Try input.float()'
        )
    if target.dtype is not dtypes.int64 and target.dtype is not dtypes.uint8:
        raise RuntimeError(
            f"expected target dtype to be Long or Byte, found {target.dtype.name}: a target of shape {found} names a class "
            "for every sample. Try target.long()"
        )
    if weight is not None:
        n = shape[1] if len(shape) > 1 else shape[0]
        if weight.dim() != 1 or weight.numel() != n:
            _refuse_weight("", weight, n)
        if weight.dtype is not input.dtype:
            raise RuntimeError(
                f"expected scalar type {input.dtype.name} but found {weight.dtype.name}: {name} wants weights of the input's dtype"
            )


def _hint(shape, found) -> str:
    if len(found) == len(shape) == 2 and found[1] == 1:
        return " Try target.squeeze(1)"
    if len(found) == len(shape) and len(shape) > 1:
        return " Class probabilities would have the shape of the input; class numbers have one dimension less"
    if len(shape) == 3 and len(found) == 2 and (shape[0], shape[1]) == found:
        return (
            " The classes are dimension 1 of the input: try input.transpose(1, 2), or flatten both, input.view(-1, C) and target.view(-1)"
        )
    return ""


def _refuse_weight(prefix: str, weight, n: int) -> None:
    raise RuntimeError(
        f"{prefix}weight tensor should be defined either for all {n} classes or no classes, found shape {list(weight.shape)}"
    )
