"""Multi-head attention: queries, keys and values projected into several small spaces, attention in each, and a projection back.

    L queries, S keys, N samples, E features = heads x D        query (L, N, E)   key, value (S, N, .)   ->   (L, N, E)

The layer of the same name (nn/modules/multihead.py) holds the weights; this is its mathematics. Its masks are both of either kind:
True where a query may NOT look, or numbers that are added to the scores.
"""

from __future__ import annotations

import math

from flambeau import dtypes, errors
from flambeau.ops.attention import scaled_dot_product_attention
from flambeau.ops.declare import composite
from flambeau.ops.dropout import functional_dropout
from flambeau.ops.joining import cat
from flambeau.ops.linear import linear
from flambeau.ops.padding import constant_pad_nd


@composite(name="nn.functional.multi_head_attention_forward", method=False)
def multi_head_attention_forward(
    query, key, value, embed_dim_to_check, num_heads, in_proj_weight, in_proj_bias, bias_k, bias_v, add_zero_attn, dropout_p, out_proj_weight,
    out_proj_bias, training=True, key_padding_mask=None, need_weights=True, attn_mask=None, use_separate_proj_weight=False,
    q_proj_weight=None, k_proj_weight=None, v_proj_weight=None, static_k=None, static_v=None, average_attn_weights=True, is_causal=False,
):  # fmt: skip
    """(the result, the weights of attention or None). See `nn.MultiheadAttention`; is_causal is a hint that attn_mask is the causal one."""
    batched = check_shapes(query, key, value, key_padding_mask, attn_mask, num_heads)
    if not batched:
        query, key, value = _one_sample(query, key, value)
        key_padding_mask = key_padding_mask if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    if is_causal and attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
    padding = canonical_mask(key_padding_mask, "key_padding_mask", None if attn_mask is None else attn_mask.dtype, "attn_mask", query.dtype)
    if is_causal and padding is None and not need_weights:
        mask = None  # the hint says it all
    else:
        mask = canonical_mask(attn_mask, "attn_mask", None, "", query.dtype)
        is_causal = is_causal and padding is None
    length, samples, features = query.shape
    _check_features(query, key, value, embed_dim_to_check, num_heads, use_separate_proj_weight)
    if use_separate_proj_weight:
        biases = (None,) * 3 if in_proj_bias is None else in_proj_bias.chunk(3)
        weights = (q_proj_weight, k_proj_weight, v_proj_weight)
        for name, weight in zip(("q_proj_weight", "k_proj_weight", "v_proj_weight"), weights, strict=True):
            assert weight is not None, f"use_separate_proj_weight is True but {name} is None"
        q, k, v = (linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))
    else:
        assert in_proj_weight is not None, "use_separate_proj_weight is False but in_proj_weight is None"
        q, k, v = projected(query, key, value, in_proj_weight, in_proj_bias)
    mask = _as_3d(mask, length, samples, num_heads, key.shape[0])
    if bias_k is not None and bias_v is not None:  # one more key and value, the same for all samples
        assert static_k is None and static_v is None, "bias cannot be added to static key. Give bias_k and bias_v, or static_k and static_v"
        k, v = (cat([x, b.repeat(1, samples, 1)]) for x, b in ((k, bias_k), (v, bias_v)))
        mask, padding = _one_more(mask), _one_more(padding)
    else:
        assert bias_k is None and bias_v is None, "bias_k and bias_v are given both or not at all"
    size = features // num_heads
    q = _by_head(q, num_heads)
    k, v = (
        _by_head(x, num_heads) if fixed is None else _fixed(fixed, samples, num_heads, size) for x, fixed in ((k, static_k), (v, static_v))
    )
    if add_zero_attn:
        k, v = (cat([x, x.new_zeros((samples, num_heads, 1, size))], 2) for x in (k, v))
        mask, padding = _one_more(mask), _one_more(padding)
    mask = _merged(mask, padding, samples, num_heads, k.shape[2])
    dropout_p = dropout_p if training else 0.0
    weights = None
    if need_weights:
        out, weights = _with_weights(q, k, v, mask, dropout_p)
        weights = weights.mean(1) if average_attn_weights else weights
        weights = weights if batched else weights.squeeze(0)
    else:
        if mask is not None:
            mask = mask.unsqueeze(0) if mask.shape[0] == 1 else mask.reshape(samples, num_heads, -1, k.shape[2])
        out = scaled_dot_product_attention(q, k, v, mask, dropout_p, is_causal)
    out = linear(out.permute(2, 0, 1, 3).reshape(length * samples, features), out_proj_weight, out_proj_bias)
    out = out.reshape(length, samples, out.shape[1])
    return out if batched else out.squeeze(1), weights


def _by_head(x, heads: int):
    """(L, N, E) as (N, heads, L, D), where it lies."""
    return x.unflatten(-1, (heads, x.shape[-1] // heads)).permute(1, 2, 0, 3)


def check_shapes(query, key, value, padding, mask, heads: int) -> bool:
    """Whether there is a dimension of samples."""
    assert query.dim() in (2, 3), f"query must be (L, E), or (L, N, E) as a batch, found {query.dim()} dimensions"
    n, kind = query.dim(), "batched" if query.dim() == 3 else "unbatched"
    assert key.dim() == value.dim() == n, (
        f"For {kind} ({n}-D) `query`, expected `key` and `value` to be {n}-D but found {key.dim()}-D and {value.dim()}-D tensors respectively"
    )
    if padding is not None:
        assert padding.dim() == n - 1, (
            f"For {kind} ({n}-D) `query`, expected `key_padding_mask` to be `None` or {n - 1}-D but found {padding.dim()}-D tensor instead"
        )
    if mask is not None:
        assert mask.dim() in (2, 3), (
            f"For {kind} ({n}-D) `query`, expected `attn_mask` to be `None`, 2-D or 3-D but found {mask.dim()}-D tensor instead"
        )
        wanted = (heads, query.shape[0], key.shape[0])
        assert n == 3 or mask.dim() == 2 or tuple(mask.shape) == wanted, (
            f"Expected `attn_mask` shape to be {wanted}, found {tuple(mask.shape)}"
        )
    return n == 3


def _one_sample(query, key, value):
    """With a dimension of one sample; what was one tensor stays one."""
    q = query.unsqueeze(1)
    k = q if key is query else key.unsqueeze(1)
    return q, k, k if value is key else value.unsqueeze(1)


def _check_features(query, key, value, expected: int, heads: int, separate: bool) -> None:
    features = query.shape[-1]
    assert features == expected, f"query has {features} features, but embed_dim is {expected}"
    assert features // heads * heads == features, f"embed_dim {features} not divisible by num_heads {heads}"
    shapes = f"key has shape {tuple(key.shape)}, value {tuple(value.shape)}"
    if separate:
        assert key.shape[:2] == value.shape[:2], f"key and value must agree in length and samples: {shapes}"
    else:
        assert key.shape == value.shape, f"key and value must have one shape: {shapes}"


def canonical_mask(mask, mask_name: str, other_type, other_name: str, target_type, check_other: bool = True):
    """A mask of either kind as numbers to add: -inf where a boolean one is True."""
    if mask is None:
        return None
    if mask.dtype is not dtypes.bool and not mask.is_floating_point():
        raise AssertionError(f"{mask_name} must be bool or floating point, found {mask.dtype}")
    if check_other and other_type is not None and mask.dtype is not other_type:
        errors.warn(f"Support for mismatched {mask_name} and {other_name} is deprecated: make both of one dtype.", UserWarning)
    return mask if mask.dtype is not dtypes.bool else mask.new_zeros(tuple(mask.shape), dtype=target_type).masked_fill(mask, -math.inf)


def none_or_dtype(mask):
    """The dtype of a mask, if there is one."""
    return None if mask is None else mask.dtype


def projected(query, key, value, weight, bias=None):
    """One product for all that share an input: rows of `weight` are those of q, k and v."""
    features = query.shape[-1]
    if key is value and query is key:
        together = linear(query, weight, bias)
        return together.unflatten(-1, (3, features)).unbind(-2)
    if key is value:
        q_bias, kv_bias = (None, None) if bias is None else bias.split([features, 2 * features])
        q_weight, kv_weight = weight.split([features, 2 * features])
        together = linear(key, kv_weight, kv_bias)
        return linear(query, q_weight, q_bias), *together.unflatten(-1, (2, features)).unbind(-2)
    biases = (None,) * 3 if bias is None else bias.chunk(3)
    return projected_apart(query, key, value, *weight.chunk(3), *biases)


def projected_apart(query, key, value, q_weight, k_weight, v_weight, q_bias=None, k_bias=None, v_bias=None):
    """The same with weights of their own."""
    return linear(query, q_weight, q_bias), linear(key, k_weight, k_bias), linear(value, v_weight, v_bias)


SWAPPED = " Are batch and sequence swapped? (sequence, batch, features) is expected unless the layer was made with batch_first=True."


def _as_3d(mask, length: int, samples: int, heads: int, keys: int):
    if mask is None:
        return None
    if mask.dim() not in (2, 3):
        raise RuntimeError(f"attn_mask's dimension {mask.dim()} is not supported")
    wanted = (length, keys) if mask.dim() == 2 else (samples * heads, length, keys)
    if tuple(mask.shape) != wanted:
        hint = SWAPPED if mask.shape[-1] != keys and mask.shape[-1] == samples else ""
        raise RuntimeError(f"The shape of the {mask.dim()}D attn_mask is {tuple(mask.shape)}, but should be {wanted}.{hint}")
    return mask.unsqueeze(0) if mask.dim() == 2 else mask


def _one_more(mask):
    """The mask for one more key, which all may look at."""
    return None if mask is None else constant_pad_nd(mask, (0, 1))


def _fixed(given, samples: int, heads: int, size: int):
    """Keys or values that come projected, (N x heads, S, D), as (N, heads, S, D)."""
    together = samples * heads
    assert given.shape[0] == together, (
        f"static_k and static_v: the first size must be batch times heads, {together}, found {given.shape[0]}"
    )
    assert given.shape[2] == size, f"static_k and static_v: the last size must be that of a head, {size}, found {given.shape[2]}"
    return given.reshape(samples, heads, given.shape[1], size)


def _merged(mask, padding, samples: int, heads: int, keys: int):
    """Both masks as one, (1 or N x heads, 1 or L, S)."""
    if padding is None:
        return mask
    hint = SWAPPED if tuple(padding.shape) == (keys, samples) else ""
    expected = f"expecting key_padding_mask shape of {(samples, keys)}, but got {tuple(padding.shape)}.{hint}"
    assert tuple(padding.shape) == (samples, keys), expected
    padding = padding.reshape(samples, 1, 1, keys).expand(samples, heads, 1, keys).reshape(samples * heads, 1, keys)
    return padding if mask is None else mask + padding


def _with_weights(q, k, v, mask, dropout_p: float):
    """(result (N, heads, L, D), probabilities (N, heads, L, S)), by the formula as it stands."""
    together = q.shape[0] * q.shape[1]
    lead, scaled = q.shape[:2], q * math.sqrt(1 / max(q.shape[-1], 1))
    scaled, k, v = (x.reshape(together, x.shape[2], x.shape[3]) for x in (scaled, k, v))
    scores = scaled.bmm(k.transpose(-2, -1)) if mask is None else mask.baddbmm(scaled, k.transpose(-2, -1))
    weights = functional_dropout(scores.softmax(-1), dropout_p)
    return tuple(x.reshape((*lead, *x.shape[1:])) for x in (weights.bmm(v), weights))
