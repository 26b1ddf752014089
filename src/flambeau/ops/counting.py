"""Counting: which values there are, how often, and in which intervals."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from flambeau import dtypes
from flambeau.kernels import arrays, layout
from flambeau.kernels.indexing import counting as tally
from flambeau.kernels.indexing import gather
from flambeau.kernels.reductions.reduce import reduce, unhalved
from flambeau.kernels.templates import sorting
from flambeau.ops import specs
from flambeau.ops.declare import composite, no_derivative, on_arrays
from flambeau.ops.reductions import dims_of, reduced_shape
from flambeau.ops.results import named_result
from flambeau.ops.views import whole

# -- distinct values ----------------------------------------------------------------------------------------------------------


@on_arrays(grad_name="Unique2Backward0", meta=specs.of_data)
def _unique(input, dim, consecutive, places):
    """(values, inverse, counts) of the distinct slices along `dim`; of the distinct elements, if it is None. The inverse is empty without `places`."""
    xp = arrays.module_of(input)
    if input.dtype.kind == "c":
        raise NotImplementedError('"unique" not implemented for complex numbers, which have no order')
    if dim is None and not consecutive and not places and input.size:
        ordered = sorting.sort(input.reshape(-1), 0, False)[0]
        starts = xp.flatnonzero(sorting.changes(unhalved(ordered)[:, None]))
        return ordered[starts], xp.empty(0, np.int64), xp.diff(starts, append=ordered.size)
    slices = input.reshape(-1, 1) if dim is None else xp.moveaxis(input, dim, 0)
    n = slices.shape[0]
    rows = slices.reshape(n, slices.size // n if n else 1)
    if consecutive:
        ordered, begins = xp.arange(n), sorting.changes(unhalved(rows))
    else:
        ordered, begins = sorting.groups(rows, incomparable=dim is not None)
    starts = xp.flatnonzero(begins)
    inverse = xp.empty(n, np.int64)
    inverse[ordered] = xp.cumsum(begins) - 1
    counts = xp.diff(starts, append=n)
    values = slices[ordered[starts]]
    if dim is None:
        return values.reshape(-1), inverse.reshape(input.shape), counts
    return xp.moveaxis(xp.ascontiguousarray(values), 0, dim), inverse, counts  # slice after slice, as PyTorch leaves them


_unique.derivative(input=lambda grad: no_derivative("unique", "input"))  # equal elements have no one place to send a gradient to


@on_arrays(grad_name="Unique2Backward0", meta=specs.of_data)
def _runs(input, consecutive):
    """The elements that differ from the one before them (once sorted, unless `consecutive`), as `_unique` finds them, when nothing else is asked for."""
    xp, flat = arrays.module_of(input), input.reshape(-1)
    if input.dtype.kind not in "biuf" or (xp is not np and not consecutive):
        return _unique.forward(input, None, consecutive, False)[0]
    if not consecutive:
        flat = np.sort(flat)
    begins = xp.ones(flat.shape, bool)
    xp.not_equal(flat[1:], flat[:-1], out=begins[1:])
    return flat.take(gather.true_places(begins))


_runs.derivative(input=lambda grad: no_derivative("unique", "input"))


@composite
def unique(input, sorted=True, return_inverse=False, return_counts=False, dim=None):
    """The distinct elements in order, or the distinct slices along `dim`. A NaN is distinct from every other.

    return_inverse  also where each element of the input went;  return_counts  also how often each was there
    """
    for name, flag in (("sorted", sorted), ("return_inverse", return_inverse), ("return_counts", return_counts)):
        if not isinstance(flag, bool):
            raise TypeError(f"unique(): argument '{name}' must be bool, not {type(flag).__name__}")
    return _distinct(input, dim, return_inverse, return_counts, consecutive=False)


@composite
def unique_consecutive(input, return_inverse=False, return_counts=False, dim=None):
    """The elements (or slices along `dim`) that differ from the one before them."""
    return _distinct(input, dim, return_inverse, return_counts, consecutive=True)


def _distinct(input, dim, return_inverse: bool, return_counts: bool, consecutive: bool):
    if dim is not None:
        dim = layout.wrap_dim(whole(dim), input.dim(), scalar_ok=False)
        if not input.numel() and any(n == 0 for d, n in enumerate(input.shape) if d != dim):
            raise RuntimeError(
                f"unique along a dimension: another one has size 0, so its slices hold nothing to compare, found {tuple(input.shape)}"
            )
    if dim is None and not return_inverse and not return_counts:
        return _runs(input, consecutive)
    values, inverse, counts = _unique(input, dim, consecutive, return_inverse)
    asked = [values, *([inverse] if return_inverse else []), *([counts] if return_counts else [])]
    return tuple(asked) if len(asked) > 1 else values


@on_arrays(meta=specs.of_data)
def _bincount(input, weights, minlength):
    """How often each number occurs, or the sum of its weights."""
    xp = arrays.module_of(input)
    if input.dtype.kind not in "iu":
        raise NotImplementedError(f'"bincount" not implemented for {dtypes.of_array(input).name}; it counts integers. Try x.long()')
    low, high = _extent(input) if input.ndim == 1 and input.size else (0, -1)
    if input.ndim != 1 or low < 0:
        raise RuntimeError(f"bincount only takes 1-d non-negative integral inputs, found shape {tuple(input.shape)}")
    if minlength < 0:
        raise RuntimeError(f"minlength should be >= 0, found {minlength}")
    if weights is None or not input.size:
        found = tally.values(input, max(int(high) + 1, minlength))
        return xp.bincount(input, minlength=minlength).astype(np.int64) if found is None else found
    if weights.shape != input.shape:
        raise RuntimeError(
            f"bincount: weights and input must have the same length, one dimension each, found {tuple(weights.shape)} for {tuple(input.shape)}"
        )
    out = weights.dtype if weights.dtype == np.float32 else np.dtype(np.float64)
    return xp.bincount(input, arrays.cast(weights, dtypes.float64.numpy), minlength).astype(out)


@composite
def bincount(input, weights=None, minlength=0):
    """How often each of 0, 1, ..., max(input) occurs in `input` (N,), or the sum of `weights` (N,) over its occurrences."""
    return _bincount(input, None if weights is None else weights.detach(), whole(minlength))


# -- one number for many ------------------------------------------------------------------------------------------------------


@on_arrays(differentiable=False)
def _hash(input, dims, keepdim):
    """The exclusive or, over some dimensions, of the bits of all elements as float64 or int64."""
    xp, found = arrays.module_of(input), dtypes.of_array(input)
    if found.is_complex or found.name in ("uint16", "uint32", "uint64"):
        raise NotImplementedError(
            f'"hash_tensor" not implemented for {found.name} tensors. Try .view(torch.int32), say, to hash their bytes'
        )
    wide = arrays.cast(input, (dtypes.float64 if found.is_floating_point else dtypes.int64).numpy)
    kept = [d for d in range(input.ndim) if d not in dims]
    bits = (
        xp.ascontiguousarray(wide.transpose(*kept, *dims))
        .view(np.uint64)
        .reshape(*[input.shape[d] for d in kept], prod(input.shape[d] for d in dims))
    )
    while (n := bits.shape[-1]) > 1:  # halves onto each other
        folded = bits[..., : n // 2] ^ bits[..., n // 2 : n // 2 * 2]
        if n % 2:
            folded[..., 0] ^= bits[..., -1]
        bits = folded
    return bits.reshape(reduced_shape(input.shape, dims, keepdim))


_hash.meta(lambda input, dims, keepdim: (reduced_shape(input.shape, dims, keepdim), dtypes.uint64.numpy))


@composite(out="same")
def hash_tensor(input, dim=(), *, keepdim=False, mode=0):
    """One uint64 for all elements, or for those along dimensions: the exclusive or of their bits as float64 or int64. For comparing tensors.

    >>> torch.hash_tensor(torch.tensor([1, 2, 4]))
    tensor(7, dtype=torch.uint64)
    """
    if mode:
        raise RuntimeError(f"Unknown hash_tensor mode: {mode}. 0 is the exclusive or, and there is no other")
    dims = dims_of(None if isinstance(dim, (tuple, list)) and not dim else dim, input.dim())
    if not input.numel() and (dim is None or dim == () or dim == []):
        raise RuntimeError("hash_tensor: Expected reduction dim, as nothing is in the input. Give dim=")
    for d in dims:
        if input.dim() and not input.shape[d]:
            raise IndexError(f"hash_tensor: Expected reduction dim {d} to have non-zero size.")
    return _hash(input, dims if input.dim() else (), keepdim)


# -- histograms ---------------------------------------------------------------------------------------------------------------


@on_arrays
def _histc(input, bins, low, high):
    """The number of elements in each of `bins` equal intervals from `low` to `high`."""
    xp = arrays.module_of(input)
    if input.dtype.kind in "biuc":
        raise NotImplementedError(f'"histogram" not implemented for {input.dtype.name}. Try x.float()')
    if bins <= 0:
        raise RuntimeError(f"torch.histc(): bins must be > 0, but got {bins}")
    values = input.reshape(-1)
    number = input.dtype.type  # half precision is not widened here: which interval an element falls into depends on every rounding
    low, high = map(number, _range("torch.histc", values, low, high, slack=1))
    found = tally.intervals(values, bins, float(low), float(high))
    if found is not None:
        return arrays.cast(found, input.dtype)
    inside = values[(values >= low) & (values <= high)]
    with np.errstate(all="ignore"):
        at = ((inside - low) * number(bins) / (high - low)).astype(np.int64)
    return xp.bincount(xp.minimum(at, bins - 1), minlength=bins).astype(input.dtype)


_histc.meta(lambda input, bins, low, high: ((bins,), input.dtype))


def _extent(values):
    """The least and the greatest element."""
    return [reduce(name, values, tuple(range(values.ndim)), False, values.dtype).item() for name in ("min", "max")]


def _range(name: str, values, low, high, slack: float):
    """The interval to count in: as given, that of the data if it is empty, widened by `slack` on both sides if it is a point."""
    low, high = float(low), float(high)
    if low == high and values.size:
        low, high = map(float, _extent(values))
    if not np.isfinite(low) or not np.isfinite(high):
        raise RuntimeError(f"{name}: range of [{low}, {high}] is not finite. Give min and max, or remove NaN and infinity first")
    if low == high:
        low, high = low - slack, high + slack
    if not low < high:
        raise RuntimeError(f"{name}: max must be larger than min, found [{low}, {high}]")
    return low, high


@composite(out="same")
def histc(input, bins=100, min=0, max=0):
    """How many elements lie in each of `bins` equal intervals between `min` and `max` (of the data, if they are equal).

    Elements outside, and NaN, are not counted. Any shape -> (bins,)
    """
    low, high = (v.item() if hasattr(v, "_array") else v for v in (min, max))
    if low > high:  # for integers too, of which nothing else is counted
        raise RuntimeError(f"histc: max must be larger than min, found [{low}, {high}]")
    return _histc(input.detach(), whole(bins), low, high)


@on_arrays
def _edges(input, bins, low, high):
    """The edges of `bins` equal intervals over the range of a column (N,), or over [low, high]."""
    xp = arrays.module_of(input)
    if low is None:
        low, high = map(float, _extent(input)) if input.size else (0.0, 1.0)
        if not np.isfinite(low) or not np.isfinite(high):
            raise RuntimeError(f"torch.histogramdd: the range [{low}, {high}] of the data is not finite. Give range=, or remove NaN first")
    if low > high:
        raise RuntimeError(f"torch.histogramdd: the range ends before it begins: min should not exceed max, found {low} and {high}")
    if low == high:
        low, high = low - 0.5, high + 0.5
    number = input.dtype.type
    i = xp.arange(bins + 1).astype(input.dtype)
    with np.errstate(all="ignore"):  # a range wider than the largest number has edges that are none, as in PyTorch
        step = (number(high) - number(low)) / number(bins)
        # From both ends to the middle, so that the last edge is exactly `high`.
        return xp.where(i < (bins + 1) // 2, number(low) + step * i, number(high) - step * (number(bins) - i)).astype(input.dtype)


_edges.meta(lambda input, bins, low, high: ((bins + 1,), input.dtype))


@on_arrays
def _counts(points, edges, weight, density):
    """How many points (N, D), or how much weight (N,), in each cell between the edges of D dimensions."""
    xp = arrays.module_of(points)
    shape = tuple(len(e) - 1 for e in edges)
    inside = xp.ones(points.shape[0], np.bool_)
    cell = xp.zeros(points.shape[0], np.int64)
    for d, edge in enumerate(edges):
        column = points[:, d]
        at = sorting.search(edge, column, True) - 1
        at = xp.where(column == edge[-1], shape[d] - 1, at)  # the last interval is closed on both sides
        inside &= (column >= edge[0]) & (column <= edge[-1])
        cell = cell * shape[d] + at
    weights = None if weight is None else weight[inside]
    cell = cell[inside]
    hist = None if weights is not None else tally.values(cell, prod(shape))
    hist = xp.bincount(cell, weights, minlength=prod(shape)) if hist is None else hist
    hist = hist.astype(points.dtype).reshape(shape)
    if density:
        with np.errstate(all="ignore"):  # of no points at all the density is 0 / 0: NaN, as PyTorch has it
            hist = hist / hist.sum()
            for d, edge in enumerate(edges):
                hist = hist / xp.diff(edge).reshape([-1 if i == d else 1 for i in range(len(shape))])
    return hist.astype(points.dtype)


_counts.meta(lambda points, edges, weight, density: (tuple([e.shape[0] - 1 for e in edges]), points.dtype))


@composite(out=True)
def histogram(input, bins=100, *, range=None, weight=None, density=False):
    """(hist, bin_edges): how many elements lie in each interval. `bins` is their number, or a tensor of their edges.

    range    (low, high) of equal intervals;  weight  what each element counts;  density  scale so that the integral is 1
    """
    points = input.detach().reshape(-1, 1)
    flat = None if weight is None else weight.detach().reshape(-1)
    hist, edges = _histogram(points, [bins], range, flat, density)
    return named_result("histogram", "hist bin_edges")(hist, edges[0])


@composite(method=False)
def histogramdd(input, bins, range=None, weight=None, density=False):
    """(hist, bin_edges): how many of the points (..., D) lie in each cell of a D-dimensional grid.

    bins   the number of intervals (one for all dimensions, or one each), or D tensors of edges
    range  the lowest and highest edge of each dimension: 2 D numbers
    """
    if input.dim() < 2:
        raise RuntimeError(f"torch.histogramdd: input must hold points, (N, D), but has {input.dim()} dimensions")
    d = input.shape[-1]
    bins = [bins] * d if isinstance(bins, int) else list(bins)
    if len(bins) != d:
        raise RuntimeError(f"histogramdd: The size of bins must be equal to the innermost dimension of input, found {len(bins)} and {d}")
    if weight is not None and tuple(weight.shape) != tuple(input.shape[:-1]):
        raise RuntimeError(f"torch.histogramdd: weight should have shape {list(input.shape[:-1])}, found {list(weight.shape)}")
    rows = prod(input.shape[:-1]) if d else 0  # points without coordinates lie in no cell
    flat = None if weight is None else weight.detach().reshape(-1)[:rows]
    hist, edges = _histogram(input.detach().reshape(rows, d), bins, range, flat, density)
    given = [b if hasattr(b, "_array") else e for b, e in zip(bins, edges, strict=True)]
    return named_result("histogramdd", "hist bin_edges")(hist, tuple(given))


def _histogram(points, bins: Sequence, range_, weight, density: bool):
    """Counts and edges for points (N, D); `bins` holds a number or a tensor of edges for each of the D dimensions."""
    if points.dtype not in (dtypes.float32, dtypes.float64):
        raise NotImplementedError(f'"histogramdd" not implemented for {points.dtype.name}. Try x.float()')
    if range_ is not None and len(range_) != 2 * len(bins):
        raise RuntimeError(f"torch.histogramdd: {len(bins)} dimensions take a range of {2 * len(bins)} elements, but got {len(range_)}")
    if weight is not None and (weight.dtype is not points.dtype or weight.numel() != points.shape[0]):
        found = f"{weight.numel()} of {weight.dtype.name} for {points.shape[0]} of {points.dtype.name}"
        raise RuntimeError(f"torch.histogramdd: there must be one weight for each point, of its dtype, found {found}")
    edges = []
    for d, b in enumerate(bins):
        if hasattr(b, "_array"):
            edges.append(_given_edges(b, d, points.dtype))
            continue
        if b <= 0:
            raise RuntimeError(f"torch.histogram(): bins must be > 0, found {b} for dimension {d}")
        low, high = (None, None) if range_ is None else (float(range_[2 * d]), float(range_[2 * d + 1]))
        edges.append(_edges(points.select(1, d), whole(b), low, high))
    return _counts(points, edges, weight, density), edges


def _given_edges(edges, d: int, dtype):
    if edges.dim() != 1:
        raise RuntimeError(f"histogramdd: bins tensor should have one dimension, a row of edges, found {edges.dim()} for dimension {d}")
    if edges.numel() == 0:
        raise RuntimeError(f"histogramdd: bins tensor should have at least 1 element, found none for dimension {d}")
    if edges.numel() == 1:
        raise RuntimeError(f"histogram(): bins must be > 0, found none for dimension {d}: one edge bounds no interval")
    if edges.dtype is not dtype:
        raise RuntimeError(f"torch.histogramdd: input and bins tensors should have the same dtype, found {dtype.name}, {edges.dtype.name}")
    return edges.clone()
