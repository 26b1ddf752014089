"""Attention on arrays: softmax(scale q kᵀ + mask) v, without ever holding all scores.

    q (*, L, E)   k (*, S, E)   v (*, S, V)   mask: added to the scores, repeats to (*, L, S)   ->   out (*, L, V), lse (*, L)

Where a leading dimension of k and v is 1 and that of q is not, these keys and values serve all of its queries.

Scores are made for a block of queries at a time and forgotten. What is kept is one number per query, the logarithm of the sum of the
exponentials of its scores (`lse`): exp(score - lse) is the probability again when backward asks for it. A query whose keys are all masked has
lse = inf, hence probabilities 0: its result and its gradients are 0. On the CPU the blocks are those of print_attention.py, on a GPU those of
cuda/attention.py. Half precision is computed in float32 where cuDNN does not take it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from flambeau import changes
from flambeau.kernels import arrays, layout
from flambeau.kernels.arrays import Array
from flambeau.kernels.native import native
from flambeau.kernels.reductions.reduce import reduce
from flambeau.kernels.templates import gemm

ROWS = 256  # queries to a block
# Operands of the compiled loops, and the facts about them: sizes, elements from row to row, what the mask is like.
FORWARD = ("out", "q", "k", "v", "mask", "lse", "facts")
BACKWARD = ("lse", "q", "k", "v", "g", "out", "mask", "dq", "dk", "dv", "facts")  # first what overlaps with no other, as the launcher wants
FACTS = (
    "start",
    "queries",
    "keys",
    "e",
    "w",
    "ldq",
    "ldk",
    "ldv",
    "ldg",
    "ldo",
    "lddq",
    "lddk",
    "lddv",
    "causal",
    "masked",
    "across",
    "down",
)
FLOAT32 = np.dtype(np.float32)
LARGEST = 256  # features of a head for which the compiled loops have room: they work on the stack, which may be small in threads


# PyTorch has several kernels and lets programs forbid them by name. One way of ours stands for several of those names, and is forbidden with them.
WAYS = frozenset({"MATH", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION"})
allowed = WAYS


def allow(ways: Iterable[str]) -> None:
    """From now on attention may run by these ways only."""
    global allowed
    allowed = WAYS.intersection(ways)
    changes.announce()


def check_allowed(*names: str) -> None:
    """RuntimeError if a program has forbidden the way that PyTorch knows by these names."""
    if allowed.isdisjoint(names):
        permitted = ", ".join(sorted(allowed)) or "nothing"
        raise RuntimeError(
            f"No viable backend for scaled_dot_product_attention was found: it would run by {' or '.join(names)} here, and the program "
            f"allows {permitted} (sdpa_kernel, enable_flash_sdp and their like). Try sdpa_kernel([SDPBackend.MATH, ...])"
        )


def forward(q: Array, k: Array, v: Array, mask: Array | None, scale: float, causal: bool) -> tuple[Array, Array]:
    """(out, lse); the operands may have any strides."""
    if q.dtype.itemsize == 2:
        return _forward_of_halves(q, k, v, mask, scale, causal)
    k, v = _repeated(k, q), _repeated(v, q)
    if allowed is not WAYS:
        check_allowed("MATH", "FLASH_ATTENTION", *(("EFFICIENT_ATTENTION",) if arrays.on_gpu(q) else ()))
    look = None if mask is not None else (type(q), q.shape, q.strides, k.shape, k.strides, v.shape, v.strides, q.dtype.char, causal)
    known = _seen.get(look)
    if known is not None:
        shape, back, plan = known
        made, lse = arrays.empty_beside(q, shape, q.dtype), arrays.empty_beside(q, q.shape[:-1], q.dtype)
        out = made if back is None else made.transpose(back)
        if plan is None:
            arrays.cuda_room.attention.forward(out, lse, q, k, v, None, scale, causal)
        else:
            _launch("forward", (out, q, k, v, lse), None, scale, plan)
        return out, lse
    shape, dense = (*q.shape[:-1], v.shape[-1]), _are_dense(q, k, v)
    out = arrays.empty_strided(shape, result_strides(q, k, v), q.dtype, arrays.device_of(q))
    lse = arrays.empty_beside(q, q.shape[:-1], q.dtype)
    compiled, there = _compiled(q, k, v), _on_gpu(q, v)
    if compiled or there:
        rows, plan = (_rows(q), _rows(k), _rows(v)), None
        if there:
            arrays.cuda_room.attention.forward(out, lse, *rows, mask, scale, causal)
        else:
            plan = _run("forward", (out, *rows, lse), mask, scale, causal)
        if look is not None and dense and (compiled or arrays.on_only_gpu(q)):  # programs come with the same few layouts again and again
            if len(_seen) > 500:
                _seen.clear()
            outer, back = _order(q.strides[:-1]) if q.ndim == 4 else (None, None)
            _seen[look] = out.shape if outer is None else (*[out.shape[axis] for axis in outer], out.shape[-1]), back, plan
        return out, lse
    xp = arrays.module_of(q)
    if not k.shape[-2]:
        arrays.fill(out, 0)
        arrays.fill(lse, np.inf)
        return out, lse
    if not lse.size:
        return out, lse
    with np.errstate(all="ignore"):
        for rows, keys in _blocks(q, k, causal):
            scores = _scores(q, k, mask, scale, causal, rows, keys)
            most = scores.max(-1, keepdims=True)
            powers = xp.exp(scores - xp.where(most == -np.inf, 0, most))  # all masked: exp(-inf - 0) = 0
            total = powers.sum(-1, keepdims=True)
            out[..., rows, :] = gemm.batched(powers, v[..., keys, :]) / xp.where(total == 0, 1, total)
            lse[..., rows] = xp.where(total == 0, np.inf, most + xp.log(total))[..., 0]
    return out, lse


def backward(
    grad: Array, q: Array, k: Array, v: Array, mask: Array | None, out: Array, lse: Array, scale: float, causal: bool
) -> tuple[Array, Array, Array]:
    """The gradients of q, k and v, from that of the result."""
    if q.dtype.itemsize == 2:
        return _backward_of_halves(grad, q, k, v, mask, out, lse, scale, causal)
    if not k.shape[:-2] == v.shape[:-2] == q.shape[:-2]:
        dq, dk, dv = backward(grad, q, _repeated(k, q), _repeated(v, q), mask, out, lse, scale, causal)
        return dq, _gathered(dk, k), _gathered(dv, v)
    xp, device = arrays.module_of(q), arrays.device_of(q)
    if _compiled(q, k, v):
        dq, dk, dv = _room_for_all(q, k, v)
        _run("backward", (lse, _rows(q), _rows(k), _rows(v), _rows(grad), out, dq, dk, dv), mask, scale, causal)
        return dq, dk, dv
    if _on_gpu(q, v):
        dq, dk, dv = _room_for_all(q, k, v)
        arrays.cuda().attention.backward(dq, dk, dv, _rows(grad), _rows(q), _rows(k), _rows(v), mask, _rows(out), lse, scale, causal)
        return dq, dk, dv
    dq, dk, dv = (arrays.zeros(x.shape, x.dtype, device) for x in (q, k, v))
    with np.errstate(all="ignore"):
        for rows, keys in _blocks(q, k, causal):
            g = grad[..., rows, :]
            p = xp.exp(_scores(q, k, mask, scale, causal, rows, keys) - lse[..., rows, None])
            dv[..., keys, :] += gemm.batched(p.swapaxes(-1, -2), g)
            dp = gemm.batched(g, v[..., keys, :].swapaxes(-1, -2)) - (g * out[..., rows, :]).sum(-1, keepdims=True)
            ds = p * dp * q.dtype.type(scale)
            dq[..., rows, :] = gemm.batched(ds, k[..., keys, :])
            dk[..., keys, :] += gemm.batched(ds.swapaxes(-1, -2), q[..., rows, :])
    return dq, dk, dv


def _forward_of_halves(q: Array, k: Array, v: Array, mask: Array | None, scale: float, causal: bool) -> tuple[Array, Array]:
    if "CUDNN_ATTENTION" in allowed and arrays.on_gpu(q):
        found = arrays.cuda_room.attention.forward_of_halves(q, k, v, mask, scale, causal, result_strides)
        if found is not None:
            return found
    out, lse = forward(_wide(q), _wide(k), _wide(v), _wide(mask), scale, causal)
    return arrays.cast(out, q.dtype), lse


def _backward_of_halves(grad, q, k, v, mask, out, lse, scale: float, causal: bool) -> tuple[Array, Array, Array]:
    if "CUDNN_ATTENTION" in allowed and arrays.on_gpu(q) and arrays.cuda_room.attention.takes_halves(q, k, v):
        dq, dk, dv = _room_for_all(q, k, v)
        if arrays.cuda_room.attention.backward_of_halves(dq, dk, dv, grad, q, k, v, mask, out, lse, scale, causal):
            return dq, dk, dv
    found = backward(_wide(grad), _wide(q), _wide(k), _wide(v), _wide(mask), _wide(out), lse, scale, causal)
    dq, dk, dv = (arrays.cast(x, q.dtype) for x in found)
    return dq, dk, dv


def _wide(array: Array | None) -> Array | None:
    """In float32."""
    return None if array is None else arrays.cast(array, FLOAT32)


def _repeated(x: Array, q: Array) -> Array:
    """Keys or values, for all queries that they serve."""
    return x if x.shape[:-2] == q.shape[:-2] else arrays.module_of(x).broadcast_to(x, (*q.shape[:-2], *x.shape[-2:]))


def _gathered(gradient: Array, like: Array) -> Array:
    """The gradient of keys or values, from that for all queries that they serve."""
    dims = tuple([i for i, (n, m) in enumerate(zip(gradient.shape, like.shape, strict=True)) if n != m])
    return reduce("sum", gradient, dims, True, gradient.dtype) if dims else gradient


def _blocks(q: Array, k: Array, causal: bool):
    """(queries, keys they may look at) of each block."""
    for start in range(0, q.shape[-2], ROWS):
        stop = min(start + ROWS, q.shape[-2])
        yield slice(start, stop), slice(0, min(stop, k.shape[-2]) if causal else k.shape[-2])


def _scores(q, k, mask, scale: float, causal: bool, rows: slice, keys: slice):
    xp = arrays.module_of(q)
    found = gemm.batched(q[..., rows, :] * q.dtype.type(scale), k[..., keys, :].swapaxes(-1, -2))
    if mask is not None:
        found += mask[..., rows if mask.shape[-2] > 1 else slice(None), keys if mask.shape[-1] > 1 else slice(None)]
    if causal:
        later = xp.arange(keys.stop)[None, :] > xp.arange(rows.start, rows.stop)[:, None]
        found = xp.where(later, xp.full((), -np.inf, q.dtype), found)
    return found


def result_strides(q: Array, k: Array, v: Array) -> tuple[int, ...]:
    """Of the result, in elements. Where something is not dense, PyTorch takes another way, whose result is in row-major order."""
    shape = *q.shape[:-1], v.shape[-1]
    return strides_like(shape, q) if q.ndim == 4 and _are_dense(q, k, v) else layout.contiguous_strides(shape)


def strides_like(shape: tuple[int, ...], like: Array) -> tuple[int, ...]:
    """Strides for (*, L, E) in the order of `like`: where the heads of a place lie beside each other, as one product for all of them leaves
    them, they do so here, and whoever joins them need not copy."""
    outer, back = _order(like.strides[:-1] if like.size else (0,))
    if outer is None:
        return layout.contiguous_strides(shape)
    there = *[shape[axis] for axis in outer], shape[-1]
    return layout.permute(there, layout.contiguous_strides(there), back)[1]


def _room(like: Array) -> Array:
    return arrays.empty_strided(like.shape, strides_like(like.shape, like), like.dtype, arrays.device_of(like))


def _room_for_all(q: Array, k: Array, v: Array) -> tuple[Array, Array, Array]:
    """Memory for the gradients of all three: if they were cut out of one array, then as slices of one, which need not be joined."""
    step = arrays.step_between((q, k, v))
    strides = step, *arrays.element_strides(q)
    if step > 0 and strides[-1] == 1 and layout.is_non_overlapping_and_dense((3, *q.shape), strides):
        made = arrays.empty_strided((3, *q.shape), strides, q.dtype, arrays.device_of(q))
        return made[0], made[1], made[2]
    return _room(q), _room(k), _room(v)


@lru_cache(maxsize=256)
def _order(strides: tuple[int, ...]) -> tuple:
    """(dimensions from the widest stride on, where each of them went, and the last); (None, None) for row-major order."""
    outer = sorted(range(len(strides)), key=lambda axis: -strides[axis])
    if 0 in strides or outer == sorted(outer):
        return None, None
    return outer, (*[outer.index(axis) for axis in range(len(outer))], len(outer))


# -- the compiled loops ------------------------------------------------------------------------------------------------------


def _compiled(q: Array, k: Array, v: Array) -> bool:
    """Whether print_attention.py has loops for these operands."""
    sizes = (q.shape[-1], v.shape[-1])
    return (
        type(q) is np.ndarray and native.lib is not None and q.dtype.char in "fd" and bool(q.size and v.size) and max(sizes) <= LARGEST
    )  # fmt: skip


def _on_gpu(q: Array, v: Array) -> bool:
    """Whether templates/cuda_attention.py has kernels for these operands."""
    return arrays.on_gpu(q) and arrays.cuda().attention.takes(q, v)


# (type, shapes and strides of q, k and v, dtype, causal): (shape of the result, its order, plan on the CPU)
_seen: dict[tuple | None, tuple] = {}


def _run(name: str, operands: tuple, mask, scale: float, causal: bool) -> tuple:
    """Launch a loop of print_attention.py. The plan, which holds for all operands that look like these.

    `operands` are those of FORWARD or BACKWARD but for the mask and the facts."""
    if mask is not None:  # keys in rows, as the scores are held
        mask = mask.swapaxes(-1, -2) if mask.shape[-2] == 1 else arrays.contiguous(mask.swapaxes(-1, -2))
    size = operands[0].itemsize
    looks = tuple([(x.shape, x.strides) for x in operands])
    plan = _plan(name, looks, None if mask is None else (mask.shape, mask.strides), size, causal)
    _launch(name, operands, mask, scale, plan)
    return plan


def _launch(name: str, operands: tuple, mask, scale: float, plan: tuple) -> None:
    """Give the loop the first element of each block of queries, or of each head, and the facts."""
    seen, facts, work = plan
    given = [native.strided_view(mask if at is None else operands[at], shape, strides, 0) for at, shape, strides in seen]
    if native.kernel(f"attention.{name}").into(*given, facts, work, scale) is NotImplemented:
        raise RuntimeError(f"attention.{name} did not take operands of shapes {[x.shape for x in operands]}")


def _rows(x: Array) -> Array:
    """An operand whose rows the loops can read."""
    return x if _is_dense(x) else arrays.contiguous(x)


def _are_dense(*operands: Array) -> bool:
    return all([_is_dense(x) for x in operands])


def _is_dense(x: Array) -> bool:
    """Whether the elements of a row lie beside each other."""
    return x.strides[-1] == x.itemsize or x.shape[-1] == 1


@lru_cache(maxsize=1024)
def _plan(name: str, looks: tuple, mask: tuple | None, size: int, causal: bool) -> tuple:
    """All that depends on shapes and strides (`looks`) only: per operand of the loop (which of those given it is shown, None being the mask;
    shape and strides of what it is shown of it), the facts for each block, the work in one of them."""
    names = [n for n in (FORWARD if name == "forward" else BACKWARD)[:-1] if n != "mask"]
    look = {n: (shape, tuple([step // size for step in strides])) for n, (shape, strides) in zip(names, looks, strict=True)}
    forward, lanes = name == "forward", 256 // size
    (*_, queries, e), _ = look["q"]
    (*_, keys, w), _ = look["v"]
    step = lanes if forward else max(queries, 1)
    across = down = 0
    if mask is not None:
        (*_, m, n), (*_, row, _) = mask
        across, down = int(n > 1), 0 if m == 1 else row // size
    lds = [look[n][1][-2] if n in look else 0 for n in ("q", "k", "v", "g", "out", "dq", "dk", "dv")]
    common = (queries, keys, e, w, *lds, int(causal), int(mask is not None), across, down)
    facts = np.array([(start, *common) for start in range(0, queries if forward else 1, step)], np.int64)[:, 0]  # in the order of FACTS
    views = [(names.index(n), *_firsts(n, *look[n], step)) for n in names]
    if mask is None:  # it has to be something: the queries, at which nobody looks
        shown = (names.index("q"), *_firsts("q", *look["q"], step))
    else:
        shape, strides = mask  # (*, keys, queries)
        shown = None, (*shape[:-2], -(-shape[-1] // step)), (*[s // size for s in strides[:-2]], strides[-1] // size * step)
    views.insert((FORWARD if forward else BACKWARD).index("mask"), shown)
    flops = 2 * (lanes if forward else queries) * keys * (e + w) * (1 if forward else 2.5)
    return tuple(views), facts, flops / 16


def _firsts(name: str, shape: tuple, strides: tuple, step: int) -> tuple[tuple, tuple]:
    """(shape, strides) of the first element of every block of queries, or of the one block of all keys, of an operand."""
    at = -1 if name == "lse" else -2
    if name in ("k", "v", "dk", "dv"):
        return (*shape[:at], 1), strides[: at + 1]
    return (*shape[:at], -(-shape[at] // step)), (*strides[:at], strides[at] * step)
