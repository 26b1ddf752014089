"""Attention on arrays: softmax(scale q kᵀ + mask) v, without ever holding all scores.

    q (*, L, E)   k (*, S, E)   v (*, S, V)   mask: added to the scores, repeats to (*, L, S)   ->   out (*, L, V), lse (*, L)

Scores are made for a block of queries at a time and forgotten. What is kept is one number per query, the logarithm of the sum of the
exponentials of its scores (`lse`): exp(score - lse) is the probability again when backward asks for it. A query whose keys are all masked has
lse = inf, hence probabilities 0: its result and its gradients are 0. On the CPU the blocks are those of print_attention.py.
"""

from __future__ import annotations

import numpy as np

from flambeau.kernels import arrays, gemm
from flambeau.kernels.arrays import Array

ROWS = 256  # queries to a block


def forward(q: Array, k: Array, v: Array, mask: Array | None, scale: float, causal: bool) -> tuple[Array, Array]:
    """(out, lse), of the same leading dimensions for all; they may have any strides."""
    xp, device = arrays.module_of(q), arrays.device_of(q)
    out = arrays.empty((*q.shape[:-1], v.shape[-1]), q.dtype, device)
    lse = arrays.empty(q.shape[:-1], q.dtype, device)
    if not out.size and not lse.size:
        return out, lse
    with np.errstate(all="ignore"):
        for rows, keys in _blocks(q, k, causal):
            scores = _scores(q, k, mask, scale, causal, rows, keys)
            most = scores.max(-1, keepdims=True, initial=-np.inf)
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
        found = xp.where(later, q.dtype.type(-np.inf), found)
    return found
