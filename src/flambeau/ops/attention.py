"""Attention: each query looks at all keys, and takes the average of their values by how well they fit.

    softmax(scale q kᵀ + mask) v        q (*, L, E)   k (*, S, E)   v (*, S, V)   ->   (*, L, V)

Three ways lead there. `_attention` never holds the L x S scores and saves one number per query (kernels/templates/attention.py). With dropout, or where
the mask itself wants a gradient, the formula is computed as it stands. Second derivatives come from `_by_formula`, which is the first
derivative as it stands. A query that may look at nothing gets 0 on all of them.
"""

from __future__ import annotations

import math

from flambeau import dtypes
from flambeau.kernels import layout
from flambeau.kernels.templates import attention
from flambeau.ops.declare import composite, on_arrays
from flambeau.ops.dropout import functional_dropout


@composite(name="nn.functional.scaled_dot_product_attention", method=False, autocast="half")
def scaled_dot_product_attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False
):  # fmt: skip
    """softmax(scale query keyᵀ + attn_mask) value. query (*, L, E), key (*, S, E), value (*, S, V) -> (*, L, V).

    attn_mask   repeats to (*, L, S): True where a query may look at a key, or numbers that are added to the scores
    is_causal   query i looks at keys 0 to i only
    scale       1 / sqrt(E) unless given
    enable_gqa  key and value may have fewer heads (dimension -3) than the query; each then serves several
    """
    if attn_mask is None and dropout_p == 0 and not enable_gqa and _agree(query._array, key._array, value._array):
        scale = 1 / math.sqrt(query._array.shape[-1]) if scale is None else float(scale)
        return _attention(query, key, value, None, scale, bool(is_causal))[0]
    _check(query, key, value, attn_mask, dropout_p)
    dtype, plain = query.dtype, dropout_p > 0 or (attn_mask is not None and attn_mask.requires_grad)
    fused = "FLASH_ATTENTION" in attention.allowed and query.dim() == 4 and query.shape[-1] == value.shape[-1]  # in PyTorch that takes both
    if is_causal and attn_mask is not None and (plain or not fused):
        raise RuntimeError("scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True. Give one of the two")
    mask = _added(attn_mask, query)
    heads = query.shape[-3] if enable_gqa and query.dim() > 2 else None
    if heads is not None:
        query, key, value, mask = _grouped(query, key, value, mask)
    lead = layout.broadcast_shapes(*(tuple(t.shape[:-2]) for t in (query, key, value)))
    if mask is not None:
        _check_mask_fits(mask, (*lead, query.shape[-2], key.shape[-2]))
        lead = layout.broadcast_shapes(lead, tuple(mask.shape[:-2]))
    q = query if tuple(query.shape[:-2]) == lead else query.expand((*lead, *query.shape[-2:]))
    k, v = (t if t.dim() == q.dim() else t.expand((*lead, *t.shape[-2:])) for t in (key, value))
    scale = 1 / math.sqrt(max(q.shape[-1], 1)) if scale is None else float(scale)
    if plain:
        out = _as_it_stands(q, k, v, mask, dropout_p, is_causal, scale)
    else:
        out = _attention(q, k, v, mask, scale, bool(is_causal))[0]
    out = out if heads is None else out.flatten(-4, -3)
    return out if out.dtype is dtype else out.to(dtype)


allow = attention.allow  # which ways may be taken, for nn/attention


def _agree(query, key, value) -> bool:
    """The usual case of arrays: nothing to check, to expand or to convert."""
    q, k, v = query.shape, key.shape, value.shape
    if min(len(q), len(k), len(v)) < 2:
        return False
    same = q[:-2] == k[:-2] == v[:-2] and q[-1] == k[-1] > 0 and k[-2] == v[-2]
    return same and query.dtype.char in "fd" and query.dtype == key.dtype == value.dtype


def _check(query, key, value, mask, dropout_p) -> None:
    shapes = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
    if min(query.dim(), key.dim(), value.dim()) < 2:
        raise RuntimeError(f"attention: query, key and value need at least 2 dimensions, (*, L, E), found {shapes}")
    if not query.dtype is key.dtype is value.dtype:
        raise RuntimeError(
            f"attention: Expected query, key and value of the same dtype, found {query.dtype}, {key.dtype} and {value.dtype}"
        )
    if query.is_complex():
        raise NotImplementedError(f"scaled_dot_product_attention is not implemented for {query.dtype}: softmax needs an order of numbers")
    if not query.is_floating_point():
        raise RuntimeError(f"scaled_dot_product_attention: expected scalar type Float but found {query.dtype}. Try query.float()")
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise RuntimeError(
            f"scaled_dot_product_attention: query and key must agree in the last size, key and value in the one before; got {shapes}"
        )
    if not 0 <= dropout_p <= 1:
        raise RuntimeError(f"attention: dropout_p is a probability, in [0, 1], found {dropout_p}")
    if mask is not None and mask.dtype not in (dtypes.bool, dtypes.float32, query.dtype):
        raise RuntimeError(f"Expected attn_mask dtype to be bool or {query.dtype}, as query, found {mask.dtype}")


def _check_mask_fits(mask, shape: tuple[int, ...]) -> None:
    for given, wanted in zip(reversed(mask.shape), reversed(shape), strict=False):
        if given not in (1, wanted) and wanted != 1:
            raise RuntimeError(f"attn_mask has shape {tuple(mask.shape)}, which does not repeat to that of the scores, {shape}")


def _added(mask, query):
    """The mask as numbers to add: 0 where a query may look, -inf where it may not."""
    if mask is None:
        return None
    mask = mask if mask.dim() > 1 else mask.reshape((*(1,) * (2 - mask.dim()), *mask.shape))
    if mask.dtype is dtypes.bool:
        return query.new_zeros(tuple(mask.shape)).masked_fill(~mask, -math.inf)
    return mask if mask.dtype is query.dtype else mask.to(query.dtype)


def _grouped(query, key, value, mask):
    """Heads (dimension -3) as groups of those that share a key head: (*, groups, each, L, E), with keys and values of one head per group.

    query heads   0 1 2 3 4 5          (0 1 2) (3 4 5)
    key heads     0     1        ->       0       1
    """
    heads, groups = query.shape[-3], key.shape[-3]
    if min(key.dim(), value.dim()) < 3 or not groups or not value.shape[-3] or heads % groups or heads % value.shape[-3]:
        raise RuntimeError(
            "attention with enable_gqa: the heads of query must be a multiple of those in key and value, found "
            f"{tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}"
        )
    if value.shape[-3] != groups:
        groups = heads
        key, value = (t.repeat_interleave(heads // t.shape[-3], -3) for t in (key, value))
    if mask is not None and mask.dim() > 2:
        mask = mask.unsqueeze(-4) if mask.shape[-3] == 1 else mask.unflatten(-3, (groups, heads // groups))
    return query.unflatten(-3, (groups, heads // groups)), key.unsqueeze(-3), value.unsqueeze(-3), mask


# -- without holding the scores ------------------------------------------------------------------------------------------------


@on_arrays(name="_attention", returns="out lse", grad_name="ScaledDotProductFlashAttentionForCpuBackward0")
def _attention(query, key, value, mask, scale, causal):
    """(softmax(scale q kᵀ + mask) v, log of the sum of exp of the scores). Key and value may have leading dimensions of 1 where the query's are not."""
    return attention.forward(query, key, value, mask, scale, causal)


_attention.first_alone = lambda *given: _attention.forward(*given)[0]


@_attention.meta
def _(query, key, value, mask, scale, causal):
    lse = dtypes.float32.numpy if query.dtype.itemsize == 2 else query.dtype
    strides = attention.result_strides(query, key, value)
    return [((*query.shape[:-1], value.shape[-1]), query.dtype, strides), (query.shape[:-1], lse)]


@_attention.joint
def _(grads, query, key, value, mask, scale, causal, out, lse, again):
    grad = grads[0]
    if grad is None:
        return {}
    if again:
        found = _by_formula(grad, query, key, value, mask, scale, causal)
    else:
        found = _attention_backward(grad, query, key, value, mask, out, lse, scale, causal)
    return dict(zip(("query", "key", "value"), found, strict=True))


@on_arrays(name="_attention_backward", returns="query key value", differentiable=False)
def _attention_backward(grad, query, key, value, mask, out, lse, scale, causal):
    """The gradients of query, key and value."""
    return attention.backward(grad, query, key, value, mask, out, lse, scale, causal)


@_attention_backward.meta
def _(grad, query, key, value, **_):
    return [(x.shape, x.dtype, attention.strides_like(x.shape, x)) for x in (query, key, value)]


# -- the formula as it stands --------------------------------------------------------------------------------------------------


def _probabilities(q, k, mask, causal: bool, scale: float):
    scores = q.matmul(k.transpose(-2, -1)) * scale
    if mask is not None:
        scores = scores + mask
    if causal:
        allowed = scores.new_ones(tuple(scores.shape[-2:]), dtype=dtypes.bool).tril()
        scores = scores.masked_fill(~allowed, -math.inf)
    alone = (scores == -math.inf).all(-1, keepdim=True)  # before and after softmax: 0 / 0 must not reach the derivative either
    return scores.masked_fill(alone, 0).softmax(-1).masked_fill(alone, 0)


def _widened(tensor):
    return tensor.to(dtypes.float32) if tensor is not None and tensor.dtype.itemsize == 2 else tensor


def _as_it_stands(q, k, v, mask, dropout_p: float, causal: bool, scale: float):
    attention.check_allowed("MATH")
    p = _probabilities(_widened(q), _widened(k), _widened(mask), causal, scale).to(q.dtype)
    return functional_dropout(p, dropout_p).matmul(v)


def _by_formula(grad, query, key, value, mask, scale: float, causal: bool):
    """The first derivative with operations, so that they can be differentiated."""
    g, q, k, v = map(_widened, (grad, query, key, value))
    p = _probabilities(q, k, _widened(mask), causal, scale)
    dp = g.matmul(v.transpose(-2, -1))
    ds = p * (dp - (dp * p).sum(-1, keepdim=True)) * scale
    found = ds.matmul(k), ds.transpose(-2, -1).matmul(q), p.transpose(-2, -1).matmul(g)
    return tuple(t.sum_to_size(tuple(like.shape)).to(query.dtype) for t, like in zip(found, (query, key, value), strict=True))
