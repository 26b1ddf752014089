"""Distances between points: cdist (all pairs of two sets), pdist (all pairs of one set), pairwise_distance (row by row).

The p-distance of x and y is (sum |x - y|^p)^(1/p): 2 is the Euclidean one, 1 the sum, inf the largest of the differences, 0 their number.
"""

from __future__ import annotations

from math import inf

import numpy as np

from flambeau import dtypes
from flambeau.kernels import arrays, layout
from flambeau.kernels.templates import gemm
from flambeau.ops.declare import composite, on_arrays
from flambeau.ops.norms import vector_norm

AT_ONCE = 1 << 20  # elements of differences held in memory at a time
BY_PRODUCT = 25  # beyond so many points in either set, PyTorch computes Euclidean distances by a matrix product


@on_arrays(public=False, method=False, grad_name="CdistBackward0")
def _cdist(x1, x2, p, by_product):
    """(..., P, M), (..., R, M) -> (..., P, R). by_product: |x|^2 + |y|^2 - 2 x y, which is fast, and inexact for points close together."""
    xp = arrays.module_of(x1)
    if 0 in (x1.size, x2.size):
        return xp.zeros(_pairs_shape(x1, x2), x1.dtype)
    if by_product:
        squares = (x1 * x1).sum(-1)[..., :, None] + (x2 * x2).sum(-1)[..., None, :]
        return xp.sqrt(xp.maximum(squares - 2 * gemm.batched(x1, xp.swapaxes(x2, -1, -2)), 0))
    out = arrays.empty_beside(x1, _pairs_shape(x1, x2), x1.dtype)
    rows = max(1, AT_ONCE * x1.shape[-2] // max(1, out.size * x1.shape[-1]))
    with np.errstate(all="ignore"):
        for start in range(0, x1.shape[-2], rows):
            off = x1[..., start : start + rows, None, :] - x2[..., None, :, :]
            out[..., start : start + rows, :] = _length(xp, off, p)
    return out


def _pairs_shape(x1, x2) -> tuple[int, ...]:
    batch = layout.broadcast_shapes(tuple(x1.shape[:-2]), tuple(x2.shape[:-2]))
    return (*batch, x1.shape[-2], x2.shape[-2])


def _length(xp, off, p):
    if p == 2:
        return xp.sqrt((off * off).sum(-1))
    if p == 0:
        return (off != 0).sum(-1)
    size = abs(off)
    if p == 1:
        return size.sum(-1)
    return size.max(-1) if p == inf else (size**p).sum(-1) ** (1 / p)


def _cdist_gradient(grad, x, y, distance, p):
    """The gradient of x: grad d(distance)/dx, summed over the points of y; zero where two points coincide."""
    if p == 0 or not distance.numel():
        return x.new_zeros(tuple(x.shape))
    if p == 2:  # (x_i - y_j) / d_ij needs no array of differences: sum_j w_ij x_i - sum_j w_ij y_j
        weight = (grad / distance).masked_fill(distance == 0, 0)
        return weight.sum(-1, keepdim=True) * x - weight @ y
    off = x.unsqueeze(-2) - y.unsqueeze(-3)
    size = off.abs()
    if p == 1:
        weight = grad.unsqueeze(-1)
    elif p == inf:
        weight = grad.unsqueeze(-1) * (size == distance.unsqueeze(-1))
    else:
        along = (size ** (p - 1)).masked_fill(off == 0, 0)
        weight = along * (grad * distance ** (1 - p)).masked_fill(distance == 0, 0).unsqueeze(-1)
    return (off.sgn() * weight).sum(-2)


_cdist.derivative(
    x1=lambda grad, x1, x2, result, p: _cdist_gradient(grad, x1, x2, result, p),
    x2=lambda grad, x1, x2, result, p: _cdist_gradient(grad.mT, x2, x1, result.mT, p),
)


_cdist.meta(lambda x1, x2, p, by_product: (_pairs_shape(x1, x2), x1.dtype))


MODES = {"use_mm_for_euclid_dist_if_necessary": None, "use_mm_for_euclid_dist": True, "donot_use_mm_for_euclid_dist": False}


@composite(method=False, autocast="float32")
def cdist(x1, x2, p=2.0, compute_mode="use_mm_for_euclid_dist_if_necessary"):
    """The p-distance of every point of x1 to every point of x2. (..., P, M), (..., R, M) -> (..., P, R), batches broadcast."""
    if compute_mode not in MODES:
        raise ValueError(f"cdist: compute_mode is one of {', '.join(MODES)}, found {compute_mode}")
    for name, x in (("X1", x1), ("X2", x2)):
        if x.dtype.category != dtypes.FLOAT:
            raise RuntimeError(f"cdist only supports floating-point dtypes, {name} got: {x.dtype.name}")
        if x.dim() < 2:
            raise RuntimeError(f"cdist only supports at least 2D tensors, {name} got: {x.dim()}D")
    if x1.dtype is not x2.dtype:
        raise RuntimeError(f"expected scalar type {x1.dtype.name} but found {x2.dtype.name} (cdist)")
    if x1.dtype not in (dtypes.float32, dtypes.float64):
        raise NotImplementedError(f'"cdist" is not implemented for {x1.dtype.name}. Try x.float()')
    if x1.shape[-1] != x2.shape[-1]:
        raise RuntimeError(f"cdist: X1 and X2 must have rows of one length, found {x1.shape[-1]} and {x2.shape[-1]}")
    if p < 0:
        raise RuntimeError(f"cdist only supports non-negative p values, found {p}")
    by_product = MODES[compute_mode]
    if by_product is None:
        by_product = x1.shape[-2] > BY_PRODUCT or x2.shape[-2] > BY_PRODUCT
    return _cdist(x1, x2, float(p), by_product and p == 2)


@composite(method=False, aliases=("nn.functional.pdist",), grad_name="PdistBackward0", autocast="cuda float32")
def pdist(input, p=2.0):
    """The p-distances of all pairs of rows: of 0 to 1, 2, ..., then of 1 to 2, 3, ... (N, M) -> (N (N - 1) / 2)."""
    if input.dim() != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, rows of points, found {input.dim()} dimensions")
    if input.dtype.category != dtypes.FLOAT:
        raise RuntimeError(f"pdist only supports floating-point dtypes, found {input.dtype.name}")
    if p < 0:
        raise RuntimeError(f"pdist only supports non-negative p values, found {p}")
    if input.is_meta:
        return _cdist(input, input, float(p), False).reshape(-1)[: input.shape[0] * (input.shape[0] - 1) // 2].clone()
    above = input.new_ones((input.shape[0],) * 2, dtype=dtypes.bool).triu(1)
    return _cdist(input, input, float(p), False).masked_select(above)


@composite(method=False, aliases=("nn.functional.pairwise_distance",), grad_name="NormBackward1")
def pairwise_distance(x1, x2, p=2.0, eps=1e-6, keepdim=False):
    """The p-distance of rows of x1 to rows of x2, which broadcast; eps is added to the differences. (..., M), (..., M) -> (...)."""
    return vector_norm(x1 - x2 + eps, p, -1, keepdim)
