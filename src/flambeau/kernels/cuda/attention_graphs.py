"""Attention of half precision by cuDNN, where it is there and has a way: it holds no scores either, and remembers the same number per query.

cuDNN speaks of (batch, heads, rows, features). Fewer dimensions are fewer of these; one more, (batch, groups, each, rows, features), is how queries come
whose heads share keys in groups, which cuDNN does by itself: keys and values then have one head per group.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import cupy
import numpy as np
from cupy.cuda import Device, runtime

from flambeau.kernels import arrays
from flambeau.kernels.cuda import cudnn
from flambeau.kernels.cuda.launch import empty
from flambeau.kernels.language import expr as e
from flambeau.kernels.language.pointwise import Pointwise

Sizes = tuple[int, ...]
Look = tuple[Sizes, Sizes]  # (shape, strides in bytes)
NUMBERED = {dtype.num: dtype for dtype in (cudnn.FLOAT16, cudnn.BFLOAT16)}
LARGEST = 256  # features of a head
MOST = 4096  # ways that are remembered
FEW = 32  # queries: with as few of them, texts that grow word by word would be planned for again at every word
Q, K, V, OUT, LSE, MASK, GRAD, DQ, DK, DV = range(1, 11)
# cuDNN says of a query that may look at nothing that the sum of its exponentials is 0. We say infinity, which makes all its probabilities 0.
NOTHING = Pointwise("attention_of_nothing", lambda lse: e.where(lse == -np.inf, np.inf, lse), ("lse",))


def takes(q, k, v) -> bool:
    """Whether cuDNN may be asked about operands like these: their shapes are checked here, by nobody else."""
    features, values = q.shape[-1], v.shape[-1]
    if q.dtype.num not in NUMBERED or not cudnn.is_used() or not 2 <= q.ndim <= 5 or q.shape[-2] < FEW:
        return False
    if features % 8 or values % 8 or max(features, values) > LARGEST or not (q.size and k.size and v.size):
        return False
    shared = (*q.shape[:-3], 1) if q.ndim == 5 else q.shape[:-2]
    return k.shape[:-2] == v.shape[:-2] and k.shape[:-2] in (q.shape[:-2], shared)


def forward(q, k, v, mask, scale: float, causal: bool, strides_of: Callable[[Any, Any, Any], Sizes]) -> tuple | None:
    """(out (*, L, V), lse (*, L)), the first with the strides that `strides_of` finds for such operands; None if it is not for cuDNN."""
    if not cudnn.is_used() or q.shape[-2] < FEW:
        return None
    device, steps = q.data.device_id, None
    if device != runtime.getDevice():
        with Device(device):
            return forward(q, k, v, mask, scale, causal, strides_of)
    if (q.data.ptr | k.data.ptr | v.data.ptr) % cudnn.ALIGNED or not all([_is_readable(x.shape, x.strides, x.itemsize) for x in (q, k, v)]):
        if not takes(q, k, v):
            return None
        steps = strides_of(q, k, v)
        q, k, v = _ready(q), _ready(k), _ready(v)
    mask = None if mask is None else _whole(mask, q.shape, k.shape[-2])
    look = (
        q.dtype.num, q.shape, q.strides, k.shape, k.strides, v.shape, v.strides, None if mask is None else _look(mask), steps, scale, causal,
        device,
    )  # fmt: skip
    if look in _ways:
        way = _ways[look]
    else:
        if len(_ways) >= MOST:
            _ways.clear()
        way = _ways[look] = _way(q, k, v, mask, scale, causal, steps or strides_of(q, k, v))
    if way is None:
        return None
    made = empty(way.shape, q.dtype)
    out = made if way.back is None else made.transpose(way.back)
    lse = empty(q.shape[:-1], cudnn.FLOAT32)
    addresses = {Q: q.data.ptr, K: k.data.ptr, V: v.data.ptr, OUT: out.data.ptr, LSE: lse.data.ptr}
    if mask is None:
        way.graph.run(addresses)
        return out, lse
    way.graph.run(addresses | {MASK: mask.data.ptr})
    arrays.run(NOTHING, (lse,), (), lse.dtype, lse.dtype, out=lse)
    return out, lse


class Way(NamedTuple):
    """How attention is paid to operands of certain shapes and strides."""

    graph: cudnn.Graph
    shape: Sizes  # of the result as it lies in memory
    back: Sizes | None  # and how it is turned from there


_ways: dict[tuple, Way | None] = {}  # by all that they depend on


def _way(q, k, v, mask, scale: float, causal: bool, steps: Sizes) -> Way | None:
    """For operands that the library can read as they lie, and a result with these strides (in elements)."""
    if not takes(q, k, v):
        return None
    shape = (*q.shape[:-1], v.shape[-1])
    order = sorted(range(len(shape)), key=lambda axis: (-steps[axis], axis))
    there = tuple([shape[axis] for axis in order])
    back = None if order == sorted(order) else tuple([order.index(axis) for axis in range(len(order))])
    looks = *map(_look, (q, k, v)), (shape, tuple([step * q.itemsize for step in steps]))
    of_mask = None if mask is None else _look(mask)
    graph = _forward(q.dtype.num, looks, of_mask, scale, causal, runtime.getDevice())
    return None if graph is None else Way(graph, there, back)


def backward(dq, dk, dv, grad, q, k, v, mask, out, lse, scale: float, causal: bool) -> bool:
    """Write the gradients; False if cuDNN has no way."""
    q, k, v, out, grad = map(_ready, (q, k, v, out, grad))
    mask = None if mask is None else _whole(mask, q.shape, k.shape[-2])
    looks = tuple([(x.shape, x.strides) for x in (q, k, v, out, grad, dq, dk, dv)])
    of_mask = None if mask is None else _look(mask)
    graph = _backward(q.dtype.num, looks, of_mask, scale, causal, cudnn.deterministic(), runtime.getDevice())
    if graph is None:
        return False
    given = {Q: q, K: k, V: v, OUT: out, LSE: lse, GRAD: grad, DQ: dq, DK: dk, DV: dv}
    if mask is not None:
        given[MASK] = mask
    graph.run({number: array.data.ptr for number, array in given.items()})
    return True


def _look(x) -> Look:
    return x.shape, x.strides


@lru_cache(512)
def _forward(dtype: int, looks: tuple[Look, ...], mask: Look | None, scale: float, causal: bool, device: int) -> cudnn.Graph | None:
    """The graph for q, k, v and a result that look like these. It is deterministic in any case."""
    started = _started(dtype, looks, mask)
    if started is None:
        return None
    graph, views, bias = started
    made, lse = graph.nodes.sdpa(
        name="attention", **{name: graph.tensor(n, *view) for name, n, view in zip("qkv", (Q, K, V), views, strict=False)},
        generate_stats=True, attn_scale=scale, use_causal_mask=causal, bias=bias,
    )  # fmt: skip
    graph.result(made, OUT, *views[3])
    graph.result(lse, LSE, *_numbers_per_query(views[0][0]), cudnn.FLOAT32)
    return graph.planned(False)


@lru_cache(512)
def _backward(
    dtype: int, looks: tuple[Look, ...], mask: Look | None, scale: float, causal: bool, deterministic: bool, device: int
) -> cudnn.Graph | None:  # fmt: skip
    """The graph for q, k, v, a result, its gradient and those of the operands that look like these."""
    started = _started(dtype, looks, mask)
    if started is None:
        return None
    graph, views, bias = started
    names = ("q", "k", "v", "o", "dO")
    made = graph.nodes.sdpa_backward(
        name="attention", **{name: graph.tensor(n, *view) for name, n, view in zip(names, (Q, K, V, OUT, GRAD), views, strict=False)},
        stats=graph.tensor(LSE, *_numbers_per_query(views[0][0]), cudnn.FLOAT32), attn_scale=scale, use_causal_mask=causal,
        use_deterministic_algorithm=deterministic, bias=bias,
    )  # fmt: skip
    for result, n, view in zip(made, (DQ, DK, DV), views[5:], strict=True):
        graph.result(result, n, *view)
    return graph.planned(False)


def _started(dtype: int, looks: tuple[Look, ...], mask: Look | None) -> tuple | None:
    """(graph, operands as it sees them, the mask in it); None if one of them has no four dimensions."""
    size = NUMBERED[dtype].itemsize
    views = [_view(*look, size) for look in looks]
    of_mask = None if mask is None else _view(*mask, size)
    if None in views or (mask is not None and of_mask is None):
        return None
    graph = cudnn.Graph(NUMBERED[dtype])
    return graph, views, None if of_mask is None else graph.tensor(MASK, *of_mask)


def _numbers_per_query(q: Sizes) -> tuple[Sizes, Sizes]:
    """(shape, strides) of one number per query, contiguous."""
    batch, heads, rows, _ = q
    return (batch, heads, rows, 1), (heads * rows, rows, 1, 1)


def _view(shape: Sizes, strides: Sizes, size: int) -> tuple[Sizes, Sizes] | None:
    """(shape, strides in elements) in four dimensions."""
    # A dimension of size 1 may have any stride.
    steps = [shape[-1] if n == 1 else step // size for n, step in zip(shape[:-1], strides[:-1], strict=True)]
    if len(shape) == 5:
        groups, each = shape[1:3]
        if groups > 1 and each > 1 and steps[1] != steps[2] * each:
            return None
        shape = (shape[0], groups * each, *shape[3:])
        steps = [steps[0], steps[1] if each == 1 else steps[2], steps[3]]
    missing = 4 - len(shape)
    return (1,) * missing + tuple(shape), (shape[-1],) * missing + (*steps, 1)


def _ready(x):
    """The array itself, if the library can read it as it lies, else a copy."""
    return x if not x.data.ptr % cudnn.ALIGNED and _is_readable(x.shape, x.strides, x.itemsize) else arrays.contiguous_copy(x)


@lru_cache(4096)
def _is_readable(shape: Sizes, strides: Sizes, size: int) -> bool:
    return strides[-1] == size and all(
        [n == 1 or (step > 0 and not step % cudnn.ALIGNED) for n, step in zip(shape[:-1], strides[:-1], strict=True)]
    )


def _whole(mask, shape: Sizes, keys: int):
    """The mask with all its rows and columns, and with all heads if it has more than one: what it repeats only in parts is copied out."""
    *lead, rows, _ = shape
    given = (1,) * (len(shape) - mask.ndim) + tuple(mask.shape)
    first = int(len(lead) > 1)  # of the dimensions that are heads; before it there is the batch
    heads = given[first : len(lead)]
    full = (*given[:first], *(heads if max(heads, default=1) == 1 else lead[first:]), rows, keys)
    mask = mask.reshape(given)
    if given == full and mask.strides[-1] == mask.itemsize and not mask.data.ptr % cudnn.ALIGNED and min(mask.strides) > 0:
        return mask
    return arrays.contiguous_copy(cupy.broadcast_to(mask, full))
