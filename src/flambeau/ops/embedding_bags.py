"""Bags of embeddings: rows of a table read and combined, bag by bag, to their sum, mean or maximum."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from flambeau import dtypes, errors
from flambeau.kernels.indexing import gather, index_errors
from flambeau.kernels.templates import sparse
from flambeau.ops.asking import is_batched
from flambeau.ops.declare import composite, on_arrays
from flambeau.ops.masking import check_tensor
from flambeau.ops.rows import _embedding_backward, embedding, embedding_renorm_
from flambeau.ops.searching import searchsorted

MODES = ("sum", "mean", "max")


@composite(method=False, autocast="given")
def embedding_bag(
    weight, indices, offsets, scale_grad_by_freq=False, mode=0, sparse=False, per_sample_weights=None, include_last_offset=False,
    padding_idx=None,
):  # fmt: skip
    """(result, bag of each index, size of each bag, index of each maximum). mode is 0, 1, 2 for sum, mean, max.

    weight (V, D), indices (N,), offsets (B,): where each bag begins -> (B, D), (N,), (B,), (B, D)
    """
    _check_offsets(indices, offsets, include_last_offset)
    if include_last_offset:
        offsets = offsets[:-1]
    bags, count = offsets.shape[0], indices.shape[0]
    if indices.is_meta:  # which bag an index belongs to is not known, but what the result looks like is
        result = embedding(weight, indices).sum(0).expand((bags, weight.shape[1])).contiguous()
        return result, indices, offsets, offsets.new_empty(tuple(result.shape) if MODES[mode] == "max" else (bags,))
    place = indices.new_ones(count, dtype=dtypes.int64).cumsum(0) - 1
    bag = searchsorted(offsets.to(dtypes.int64).contiguous(), place, right=True) - 1  # of each index
    if padding_idx is not None and padding_idx >= 0:
        kept = indices != padding_idx
        indices, bag = indices[kept], bag[kept]
        per_sample_weights = None if per_sample_weights is None else per_sample_weights[kept]
    sizes = offsets.new_zeros(bags, dtype=dtypes.int64).index_add(0, bag, offsets.new_ones(indices.shape[0], dtype=dtypes.int64))
    with _outside():
        rows = embedding(weight, indices, -1, scale_grad_by_freq, sparse)
    if MODES[mode] == "max":
        result, found = _largest(rows, bag, bags)
        chosen = found.new_full(found.shape, -1) if not indices.numel() else indices.to(dtypes.int64)[found.clamp(0, indices.numel() - 1)]
        return result, bag, sizes, chosen
    wide = rows.float() if rows.dtype.itemsize == 2 else rows
    if per_sample_weights is not None:
        wide = wide * per_sample_weights.to(wide.dtype).unsqueeze(-1)
    total = wide.new_zeros((bags, weight.shape[1])).index_add(0, bag, wide)
    if MODES[mode] == "mean":
        total = total / sizes.clamp_min(1).unsqueeze(-1)
    return total.to(rows.dtype), bag, sizes, sizes


@contextmanager
def _outside() -> Iterator[None]:
    """An index that is none of a row's is a RuntimeError here, as it is PyTorch's."""
    try:
        yield
    except IndexError as problem:
        raise RuntimeError(f"embedding_bag: Expected idx >= 0 && idx < num_embeddings: {problem}") from None


# -- sums in main memory: bags are the rows of a sparse matrix, and a product with the table adds them up ---------------------


@on_arrays(public=False, method=False)
def _bag_sums(weight, indices, offsets, factors):
    """The rows of each bag added up, each times its factor if there are any. (V, D), (N,), (B,), (N,) -> (B, D)"""
    ends = _ends(offsets, indices)
    if (ends[1:] < ends[:-1]).any():
        raise RuntimeError(
            f"offsets must not fall, and not be greater than input's length ({len(indices)}): a bag begins where the last one ends"
        )
    with _outside():
        gather.check(indices, weight.shape[0], 0, index_errors.ROW)
    values = np.ones(indices.shape, weight.dtype) if factors is None else factors
    return sparse.product(ends, indices, values, weight)


def _ends(offsets, indices):
    """Where each bag begins, and where the last one ends. (B,) -> (B + 1,)"""
    return np.append(offsets, indices.shape[0])


@on_arrays(public=False, method=False, differentiable=False)
def _bag_of(offsets, indices):
    """The bag of each index. (B,), (N,) -> (N,)"""
    return sparse.expanded(_ends(offsets, indices))


@on_arrays(public=False, method=False, differentiable=False)
def _bag_sizes(offsets, indices, dtype):
    """How many indices a bag has; 1 for an empty one, whose sum is 0. (B,) -> (B, 1)"""
    return np.maximum(np.diff(_ends(offsets, indices)), 1).astype(dtype.numpy)[:, None]


_bag_sums.meta(lambda weight, indices, offsets, factors: ((offsets.shape[0], weight.shape[1]), weight.dtype))
_bag_of.meta(lambda offsets, indices: (indices.shape, offsets.dtype))
_bag_sizes.meta(lambda offsets, indices, dtype: ((offsets.shape[0], 1), dtype.numpy))


def _table_gradient(grad, weight_shape, indices, offsets, factors):
    rows = grad.index_select(0, _bag_of(offsets, indices))
    return _embedding_backward(rows if factors is None else rows * factors.unsqueeze(-1), indices, weight_shape[0], -1, False)


def _factor_gradient(grad, weight, indices, offsets):
    return (grad.index_select(0, _bag_of(offsets, indices)) * embedding(weight, indices)).sum(-1)


_bag_sums.derivative(weight=_table_gradient, factors=_factor_gradient)


def _combined(rows, mode: str, per_sample_weights):
    """The sums, means or maxima of bags that have as many rows each. (B, N, D), weights (B, N) -> (B, D)."""
    if mode == "max":
        return rows.max(1)[0]
    wide = rows.float() if rows.dtype.itemsize == 2 else rows
    if per_sample_weights is not None:
        wide = wide * per_sample_weights.to(wide.dtype).unsqueeze(-1)
    return (wide.sum(1) if mode == "sum" else wide.mean(1)).to(rows.dtype)


def _largest(rows, bag, bags: int):
    """(the largest elements of each bag, the places of their rows); zeros for an empty bag. Of equal ones, the first."""
    shape = (bags, rows.shape[1])
    if not rows.shape[0]:
        return rows.new_zeros(shape) + rows.sum() * 0, bag.new_full(shape, -1)
    column = bag.unsqueeze(-1).expand(rows.shape)
    known = rows.detach()
    peak = known.new_zeros(shape).scatter_reduce(0, column, known, "amax", include_self=False)
    place = bag.new_tensor(range(rows.shape[0])).unsqueeze(-1).expand(rows.shape)
    is_peak = (known == peak.gather(0, column)) | known.isnan()
    first = bag.new_full(shape, rows.shape[0]).scatter_reduce(0, column, place.masked_fill(~is_peak, rows.shape[0]), "amin")
    filled = first < rows.shape[0]
    return rows.gather(0, first.clamp_max(rows.shape[0] - 1)) * filled.to(rows.dtype), first


def _check_offsets(indices, offsets, include_last_offset: bool) -> None:
    if include_last_offset and not offsets.shape[0]:
        raise RuntimeError("include_last_offset: number of offsets should be at least 1")
    if offsets.is_meta or not offsets.shape[0]:
        return
    first, last = offsets[0].item(), offsets[-1].item()
    if first != 0:
        raise RuntimeError(f"offsets[0] has to be 0, where the first bag begins, found {first}")
    if last > indices.shape[0]:
        raise RuntimeError(f"offsets[-1] can not be greater than the length of input, {indices.shape[0]}, found {last}")


@composite(name="nn.functional.embedding_bag", method=False, grad_name="EmbeddingBagBackward0", autocast="given")
def functional_embedding_bag(
    input, weight, offsets=None, max_norm=None, norm_type=2, scale_grad_by_freq=False, mode="mean", sparse=False,
    per_sample_weights=None, include_last_offset=False, padding_idx=None,
):  # fmt: skip
    """The sum, mean or maximum of the rows of `weight` in each bag. input (B, N), or (N,) with offsets (B,) -> (B, D).

    A bag without rows is zero, and `padding_idx` counts as no row. per_sample_weights multiply the rows of a sum.
    """
    check_tensor("embedding_bag", "input", input)
    check_tensor("embedding_bag", "weight", weight)
    if weight.dtype is dtypes.int64 and input._is_float():
        errors.warn("Argument order of nn.functional.embedding_bag was changed: the indices come first, then the weight")
        input, weight = weight, input
    for name, found in (("input", input), ("offsets", offsets)):
        if found is not None and found.dtype not in (dtypes.int64, dtypes.int32):
            raise RuntimeError(f"embedding_bag: expected {name} of dtype int64 or int32, but got {found.dtype}")
    if weight.dim() != 2:
        raise ValueError(f"embedding_bag: weight has to be a 2D Tensor, one row per index, found {weight.dim()} dimensions")
    if per_sample_weights is not None and input.shape != per_sample_weights.shape:
        raise ValueError(
            f"per_sample_weights must have the same shape as the input, {tuple(input.shape)}, found {tuple(per_sample_weights.shape)}"
        )
    if per_sample_weights is not None and per_sample_weights.dtype is not weight.dtype:
        found = f"found {per_sample_weights.dtype} and {weight.dtype}"
        raise RuntimeError(f"embedding_bag: expected per_sample_weights to have the same type as weight, {found}")
    if input.dim() == 2:
        if offsets is not None:
            raise ValueError("if input is 2D, then offsets has no meaning: each row is a bag of its own")
    elif input.dim() != 1:
        raise ValueError(f"embedding_bag: input has to be 1D or 2D Tensor, found {input.dim()} dimensions")
    elif offsets is None:
        raise ValueError("offsets has to be a 1D Tensor, found None: it says where each bag of a 1D input begins")
    elif offsets.dim() != 1:
        raise ValueError(f"offsets has to be a 1D Tensor, found {offsets.dim()} dimensions")
    if mode not in MODES:
        raise ValueError(f"mode has to be one of 'max', 'mean' and 'sum', found {mode!r}")
    if mode == "max" and scale_grad_by_freq:
        raise ValueError("embedding_bag: scale_grad_by_freq has no meaning for mode='max', in which one row has the whole gradient")
    if mode == "max" and sparse:
        raise ValueError("max mode does not support sparse weights")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(
            f"embedding_bag: per_sample_weights is only supported for mode='sum', found mode='{mode}'. Multiply the rows of F.embedding yourself"
        )
    if padding_idx is not None:
        if not -weight.shape[0] <= padding_idx < weight.shape[0]:
            raise RuntimeError(f"padding_idx must be within the number of embeddings, found {padding_idx} for {weight.shape[0]} rows")
        padding_idx %= weight.shape[0]
    if max_norm is not None:
        embedding_renorm_(weight, input, max_norm, norm_type)
    if input.dim() == 2:
        bags, each = input.shape
        if each and padding_idx is None:
            with _outside():
                rows = embedding(weight, input, -1, scale_grad_by_freq, sparse)
            return _combined(rows, mode, per_sample_weights)
        offsets = input.new_tensor(range(0, bags * each, each) if each else [0] * bags, dtype=input.dtype)
        include_last_offset = False
        input = input.reshape(-1)
        per_sample_weights = None if per_sample_weights is None else per_sample_weights.reshape(-1)
    plain = not scale_grad_by_freq and not sparse and padding_idx is None and mode != "max"
    if plain and weight.dtype in (dtypes.float32, dtypes.float64) and weight.is_cpu and not is_batched(weight):
        _check_offsets(input, offsets, include_last_offset)
        begin = offsets[:-1] if include_last_offset else offsets
        total = _bag_sums(weight, input, begin, None if per_sample_weights is None else per_sample_weights.to(weight.dtype))
        return total if mode == "sum" else total / _bag_sizes(begin, input, weight.dtype)
    number = MODES.index(mode)
    return embedding_bag(weight, input, offsets, scale_grad_by_freq, number, sparse, per_sample_weights, include_last_offset, padding_idx)[
        0
    ]
