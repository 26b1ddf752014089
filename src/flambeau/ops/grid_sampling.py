"""Sampling at given points: grid_sample reads images and volumes between their elements, affine_grid makes the points of an affine map.

A point is (x, y) or (x, y, z), -1 and 1 being the two ends of a dimension. It is read by a weighted sum over its neighbours, as in
`interpolation.py`; but every point has its own, and a derivative by where it is.
"""

from __future__ import annotations

import functools
import math
import operator

import numpy as np

from flambeau import dtypes, errors
from flambeau.kernels.indexing import interpolation as kernel
from flambeau.kernels.indexing import ranges
from flambeau.ops.declare import composite, on_arrays, pointwise
from flambeau.ops.joining import stack
from flambeau.ops.views import _unsafe_view

_CHANGED = (
    "grid_sample and affine_grid: align_corners=False is meant unless given (before 1.3.0 it was True). Try align_corners=... to be clear."
)
MODES, PADDINGS = tuple(kernel.MODES), kernel.PADDINGS


def _node_name(input, *rest, **named) -> str:
    return f"GridSampler{input.dim() - 2}DBackward0"


@composite(name="nn.functional.grid_sample", method=False, grad_name=_node_name, autocast="cpu float32, cuda widest")
def grid_sample(input, grid, mode="bilinear", padding_mode="zeros", align_corners=None):
    """The values of `input` at the points of `grid`. (N, C, H, W), (N, h, w, 2) -> (N, C, h, w); with volumes one dimension more.

    mode           "bilinear" (also for volumes), "nearest" or "bicubic" (images only)
    padding_mode   what is outside: "zeros", the "border" element, or a "reflection"
    align_corners  whether -1 and 1 are the centres of the outermost elements, or their outer edges (the default)
    """
    if mode not in MODES:
        raise ValueError(f"grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'")
    if padding_mode not in PADDINGS:
        wanted = "padding_mode is one of 'zeros', 'border' and 'reflection'"
        raise ValueError(f"nn.functional.grid_sample(): {wanted}, but got: '{padding_mode}'")
    if align_corners is None:
        errors.warn(_CHANGED)
    return _sampled(input, grid, mode, padding_mode, bool(align_corners))


def _declare(name: str, of: str, autocast: str) -> None:
    @composite(name=name, method=False, grad_name=_node_name, autocast=autocast, doc=f"grid_sample{of} with its modes given by number.")
    def by_number(input, grid, interpolation_mode, padding_mode, align_corners):
        return _sampled(input, grid, MODES[interpolation_mode], PADDINGS[padding_mode], align_corners)


_declare("grid_sampler", "", "cpu float32, cuda widest")
_declare("grid_sampler_2d", " of images", "cpu float32")
_declare("grid_sampler_3d", " of volumes", "cpu float32")


def _sampled(input, grid, mode: str, padding: str, corners: bool):
    _check(input, grid, mode)
    samples, channels, *sizes = input.shape
    how = tuple(sizes), mode, padding, corners
    count, room = math.prod(grid.shape[1:-1]), math.prod(sizes)
    at = _positions(grid.reshape((samples, count, len(sizes))), sizes[::-1], corners)  # (N, P, dims), x first
    places, weights = _taps(at.detach(), *how)  # (N, T, P): of every dimension one neighbour
    if at.requires_grad:
        weights = _weights(at, *how)
    if padding == "zeros" and len(sizes) == 3:  # what PyTorch does not read in a volume does not count, be the point NaN or infinite
        weights = weights.masked_fill(places < 0, 0)
    found = _mixed_at(input.reshape((samples, channels, room)), places, weights)
    return _unsafe_view(found, (samples, channels, *grid.shape[1:-1]))


# -- where to read, and how much: the formulas are in kernels/indexing/interpolation.py -------------------------------------------------------


def _positions(points, sizes, corners: bool):
    """Where points of -1 ... 1 lie among the elements 0 ... n - 1 of dimensions of these sizes. (N, P, dims) -> (N, P, dims)."""
    if points.shape[-1] == 2 and points.dtype in (dtypes.float32, dtypes.float64):
        halves = [(n - 1) / 2 if corners else n / 2 for n in sizes]
        half = halves[0] if len({*halves}) == 1 else points.new_tensor(halves)
        return _stretched(points, half, 0.0 if corners else 0.5)
    n = sizes[0] if len({*sizes}) == 1 else points.new_tensor(sizes)  # volumes and half precision are rounded after every step
    return (points + 1) / 2 * (n - 1) if corners else ((points + 1) * n - 1) / 2


@pointwise(public=False, method=False, dtypes=("float32", "float64"), complex=False)
def _stretched(points, half, before):
    """(points + 1) half - before. Multiplied and subtracted in one step where the CPU can, as PyTorch does for images: see `_line`."""
    return (points + 1) * half - before


@on_arrays(public=False, method=False, differentiable=False, returns="places weights")
def _taps(positions, sizes, mode, padding, corners):
    """(places in a plane, or -1; weights) of the neighbours of positions. (N, P, dims) -> (N, T, P), (N, T, P)."""
    return kernel.taps(positions, sizes, mode, padding, corners)


@_taps.meta
def _(positions, sizes, mode, padding, corners):
    samples, count, dims = positions.shape
    shape = samples, kernel.MODES[mode] ** dims, count
    return [(shape, np.dtype(np.int32)), (shape, positions.dtype)]


ON_TENSORS = kernel.Words(
    lambda condition, x, y: x.where(condition, y),
    lambda x: x.detach().floor(),
    lambda x: x.detach().round(),
    lambda x, y: x.fmod(y),
)


def _weights(positions, sizes, *how):
    """The weights of `_taps` by operations, so that they can be differentiated."""
    lines = [kernel.line_taps(positions[..., -1 - d], n, *how, ON_TENSORS)[1] for d, n in enumerate(sizes)]
    return functools.reduce(lambda a, b: kernel.paired(a, b, operator.mul), [stack(line, 1) for line in lines])


# -- reading -----------------------------------------------------------------------------------------------------------------
#
# Three functions, linear in each of their tensors: the derivatives of each are the other two.


@on_arrays(public=False, method=False, grad_name="GridSampler2DBackward0")
def _mixed_at(input, places, weights):
    """sum over t of weights[n, t, p] * input[n, c, places[n, t, p]]. (N, C, S), (N, T, P), (N, T, P) -> (N, C, P)."""
    return kernel.mixed(input, places, weights)


@on_arrays(public=False, method=False)
def _spread_to(g, places, weights, size):
    """g, weighted, added to the places it was read at. (N, C, P), (N, T, P), (N, T, P) -> (N, C, size)."""
    return kernel.spread(g, places, weights, size)


@on_arrays(public=False, method=False)
def _along_taps(g, input, places):
    """sum over c of g[n, c, p] * input[n, c, places[n, t, p]]. (N, C, P), (N, C, S), (N, T, P) -> (N, T, P)."""
    return kernel.along(g, input, places)


_mixed_at.derivative(
    input=lambda grad, places, weights, input_shape: _spread_to(grad.contiguous(), places, weights, input_shape[2]),
    weights=lambda grad, input, places: _along_taps(grad.contiguous(), input, places),
)
_mixed_at.second_derivative = "nothing"
_spread_to.derivative(
    g=lambda grad, places, weights: _mixed_at(grad.contiguous(), places, weights),
    weights=lambda grad, g, places: _along_taps(g, grad.contiguous(), places),
)
_along_taps.derivative(
    g=lambda grad, input, places: _mixed_at(input, places, grad.contiguous()),
    input=lambda grad, g, places, input_shape: _spread_to(g, places, grad.contiguous(), input_shape[2]),
)
_mixed_at.meta(lambda input, places, weights: ((*input.shape[:2], places.shape[2]), input.dtype))
_spread_to.meta(lambda g, places, weights, size: ((*g.shape[:2], size), g.dtype))
_along_taps.meta(lambda g, input, places: (places.shape, g.dtype))


def _check(input, grid, mode: str) -> None:
    for name, found in (("input", input), ("grid", grid)):
        if found.dtype.category != dtypes.FLOAT:
            raise RuntimeError(f"grid_sampler(): expected {name} to have a floating-point dtype, but got {found.dtype}")
    if input.dtype is not grid.dtype:
        raise RuntimeError(f"grid_sampler(): expected input and grid of one dtype, found {input.dtype} and {grid.dtype}")
    if input.shape[:1] != grid.shape[:1]:
        raise RuntimeError(
            f"expected grid and input to have same batch size, found {tuple(grid.shape)} and {tuple(input.shape)} (grid_sampler)"
        )
    if grid.shape[-1:] != (input.dim() - 2,):
        raise RuntimeError(
            f"expected grid to have size {input.dim() - 2} in last dimension, a coordinate for each dimension of places, "
            f"found {list(grid.shape)} (grid_sampler)"
        )
    if 0 in input.shape[2:]:
        raise RuntimeError(f"expected input to have non-empty spatial dimensions, found {list(input.shape)} (grid_sampler)")
    if input.dim() not in (4, 5) or input.dim() != grid.dim():
        found = f"input {tuple(input.shape)} and grid {tuple(grid.shape)}"
        raise RuntimeError(f"grid_sampler(): expected 4D or 5D input, and a grid with as many dimensions; found {found}")
    if mode == "bicubic" and input.dim() == 5:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")


# -- the points of an affine map -------------------------------------------------------------------------------------------


@composite(method=False, grad_name="AffineGridGeneratorBackward0")
def affine_grid_generator(theta, size, align_corners):
    """theta times the points (x, y, 1) of a regular grid. (N, 2, 3), (N, C, H, W) -> (N, H, W, 2); with volumes (N, 3, 4) -> (N, D, H, W, 3)."""
    _, _, *sizes = size
    lines = [_line(theta, n, align_corners) for n in sizes]
    coordinates = [
        line.reshape([-1 if i == d else 1 for i in range(len(sizes))]).expand(sizes) for d, line in reversed(list(enumerate(lines)))
    ]
    points = stack([*coordinates, theta.new_ones(sizes)], -1).reshape((1, -1, len(sizes) + 1))  # (1, P, dims + 1)
    return _unsafe_view(points.matmul(theta.mT), (theta.shape[0], *sizes, len(sizes)))


def _line(theta, n: int, corners: bool):
    """n points from -1 to 1: the centres of the outermost at the ends, or their edges."""
    if n <= 1:
        return theta.new_zeros(n)
    # Rounded step by step, as PyTorch does: the points of the identity lie on elements, or beside them by the last bit, and the side decides
    # which neighbour their derivative sees.
    line = theta.new_tensor(ranges.spread(-1, 1, n, theta.dtype.numpy, theta.dtype.name))
    return line if corners else line * (n - 1) / n


@composite(name="nn.functional.affine_grid", method=False, grad_name="AffineGridGeneratorBackward0")
def affine_grid(theta, size, align_corners=None):
    """The points at which grid_sample reads an affine map of its input. theta (N, 2, 3), size (N, C, H, W) -> (N, H, W, 2)."""
    if align_corners is None:
        errors.warn(_CHANGED)
    if theta.dtype.category != dtypes.FLOAT:
        raise ValueError(f"Expected theta to have floating point type, found {theta.dtype}")
    size = [int(n) for n in size]
    dims = len(size) - 2
    if dims not in (2, 3):
        raise NotImplementedError(f"affine_grid only supports 4D and 5D sizes, (N, C, H, W) and (N, C, D, H, W), found {size}")
    if theta.dim() != 3 or tuple(theta.shape[1:]) != (dims, dims + 1):
        raise ValueError(
            f"Expected a batch of {dims}D affine matrices of shape Nx{dims}x{dims + 1} for size {size}. Got {tuple(theta.shape)}."
        )
    if theta.shape[0] != size[0] and theta.shape[0] != 1:
        raise RuntimeError(f"affine_grid: expected a matrix for each of {size[0]} samples, but got {theta.shape[0]}")
    if min(size) <= 0:
        raise ValueError(f"affine_grid: every size must be positive, found {size}")
    return affine_grid_generator(theta, size, bool(align_corners))
