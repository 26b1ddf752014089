"""Attention on arrays: softmax(scale q kᵀ + mask) v, without ever holding all scores.

    q (*, L, E)   k (*, S, E)   v (*, S, V)   mask: added to the scores, repeats to (*, L, S)   ->   out (*, L, V), lse (*, L)

Scores are made for a block of queries at a time and forgotten. What is kept is one number per query, the logarithm of the sum of the
exponentials of its scores (`lse`): exp(score - lse) is the probability again when backward asks for it. A query whose keys are all masked has
lse = inf, hence probabilities 0: its result and its gradients are 0. On the CPU the blocks are those of print_attention.py.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from flambeau.kernels import arrays, gemm, native
from flambeau.kernels.arrays import Array

ROWS = 256  # queries to a block
# Operands of the compiled loops, and the facts about them: sizes, elements from row to row, what the mask is like.
FORWARD = ("out", "q", "k", "v", "mask", "lse", "facts")
BACKWARD = ("dq", "q", "k", "v", "g", "out", "lse", "mask", "dk", "dv", "facts")
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
LARGEST = 256  # features of a head for which the compiled loops have room: they work on the stack, which may be small in threads


def forward(q: Array, k: Array, v: Array, mask: Array | None, scale: float, causal: bool) -> tuple[Array, Array]:
    """(out, lse), of the same leading dimensions for all; they may have any strides."""
    xp, device = arrays.module_of(q), arrays.device_of(q)
    out = _room((*q.shape[:-1], v.shape[-1]), q)
    lse = arrays.empty(q.shape[:-1], q.dtype, device)
    if _compiled(q, k, v):
        _run("forward", q, k, v, None, mask, scale, causal, out=out, lse=lse)
        return out, lse
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
    xp, device = arrays.module_of(q), arrays.device_of(q)
    if _compiled(q, k, v):
        dq, dk, dv = (_room(x.shape, x) for x in (q, k, v))
        _run("backward", q, k, v, grad, mask, scale, causal, out=out, lse=lse, dq=dq, dk=dk, dv=dv)
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


def _room(shape, like: Array) -> Array:
    """Memory for (*, L, E) in the order of `like`: where the heads of a place lie beside each other, as one product for all of them leaves
    them, they do so here, and whoever joins them need not copy."""
    outer, back = _order(like.strides[:-1] if like.size else (0,))
    if outer is None:
        return arrays.empty(shape, like.dtype, arrays.device_of(like))
    made = arrays.empty((*[shape[axis] for axis in outer], shape[-1]), like.dtype, arrays.device_of(like))
    return made.transpose(back)


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


@lru_cache(maxsize=256)
def _rows_of_facts(end: int, step: int, facts: tuple[int, ...]) -> Array:
    """FACTS for each block: where it starts, and what all have in common."""
    return np.array([(start, *facts) for start in range(0, end, step)], np.int64)


def _run(name: str, q, k, v, g, mask, scale: float, causal: bool, **made) -> None:
    """Launch a loop of print_attention.py: give it the first element of each block of queries, or of each head, and the facts."""
    size, lanes = q.itemsize, 256 // q.itemsize
    q, k, v, g = (x if x is None or x.strides[-1] == size or x.shape[-1] == 1 else arrays.contiguous(x) for x in (q, k, v, g))
    forward, queries = name == "forward", q.shape[-2]
    given = {"q": q, "k": k, "v": v, "g": g, **made}
    across = down = 0
    if mask is not None:  # keys in rows, as the scores are held
        mask = mask.swapaxes(-1, -2) if mask.shape[-2] == 1 else arrays.contiguous(mask.swapaxes(-1, -2))
        across, down = int(mask.shape[-1] > 1), 0 if mask.shape[-2] == 1 else mask.strides[-2] // size
    ld = [0 if x is None else x.strides[-2] // size for x in (q, k, v, g, made["out"], made.get("dq"), made.get("dk"), made.get("dv"))]
    # In the order of FACTS, after the start.
    facts = (queries, k.shape[-2], q.shape[-1], v.shape[-1], *ld, int(causal), int(mask is not None), across, down)
    rows = _rows_of_facts(queries if forward else 1, lanes, facts)
    step = lanes if forward else max(queries, 1)
    views = {
        n: x[..., ::step, 0] if n in ("q", "out", "dq", "g") else x[..., ::step] if n == "lse" else x[..., :1, 0]
        for n, x in given.items()
        if x is not None
    }
    views |= {"facts": rows[:, 0], "mask": views["q"] if mask is None else mask[..., 0, ::step]}
    flops = 2 * (lanes if forward else queries) * k.shape[-2] * (q.shape[-1] + v.shape[-1]) * (1 if forward else 2.5)
    operands = FORWARD if forward else BACKWARD
    with_out = native.kernel(f"attention.{name}").into(*(views[n] for n in operands), flops / 64, scale)
    if with_out is NotImplemented:
        raise RuntimeError(f"attention.{name} did not take operands of shapes {q.shape}, {k.shape}, {v.shape}")
