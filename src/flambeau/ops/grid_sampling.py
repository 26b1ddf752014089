"""Sampling at given points: grid_sample reads images and volumes between their elements, affine_grid makes the points of an affine map.

A point is (x, y) or (x, y, z), -1 and 1 being the two ends of a dimension. It is read by a weighted sum over its neighbours, as in
`interpolation.py`; but every point has its own, and a derivative by where it is.
"""

from __future__ import annotations

import itertools
import warnings

from flambeau import dtypes
from flambeau.ops.declare import composite
from flambeau.ops.joining import stack

MODES, PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
A = -0.75  # of the cubic convolution


@composite(name="nn.functional.grid_sample", method=False)
def grid_sample(input, grid, mode="bilinear", padding_mode="zeros", align_corners=None):
    """The values of `input` at the points of `grid`. (N, C, H, W), (N, h, w, 2) -> (N, C, h, w); with volumes one dimension more.

    mode           "bilinear" (also for volumes), "nearest" or "bicubic" (images only)
    padding_mode   what is outside: "zeros", the "border" element, or a "reflection"
    align_corners  whether -1 and 1 are the centres of the outermost elements, or their outer edges (the default)
    """
    if mode not in MODES:
        raise ValueError(f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'")
    if padding_mode not in PADDINGS:
        wanted = "expected padding_mode to be 'zeros', 'border', or 'reflection'"
        raise ValueError(f"nn.functional.grid_sample(): {wanted}, but got: '{padding_mode}'")
    if align_corners is None:
        warnings.warn("Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0.", stacklevel=3)
    return _sampled(input, grid, mode, padding_mode, bool(align_corners))


@composite(method=False)
def grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners):
    """grid_sample with its modes given by number."""
    return _sampled(input, grid, MODES[interpolation_mode], PADDINGS[padding_mode], align_corners)


@composite(method=False)
def grid_sampler_2d(input, grid, interpolation_mode, padding_mode, align_corners):
    """grid_sample of images with its modes given by number."""
    return _sampled(input, grid, MODES[interpolation_mode], PADDINGS[padding_mode], align_corners)


@composite(method=False)
def grid_sampler_3d(input, grid, interpolation_mode, padding_mode, align_corners):
    """grid_sample of volumes with its modes given by number."""
    return _sampled(input, grid, MODES[interpolation_mode], PADDINGS[padding_mode], align_corners)


def _sampled(input, grid, mode: str, padding: str, corners: bool):
    _check(input, grid, mode)
    samples, channels, *sizes = input.shape
    points = grid.reshape((samples, 1, -1, len(sizes)))  # (N, 1, P, dims), x first
    axes = [_taps(points[..., -1 - d], n, mode, padding, corners) for d, n in enumerate(sizes)]
    flat, parts = input.reshape((samples, channels, -1)), []
    for taps in itertools.product(*axes):  # of every dimension one neighbour
        place, weight, inside = taps[0]
        for n, (index, more, within) in zip(sizes[1:], taps[1:], strict=True):
            place, weight, inside = place * n + index, weight * more, inside & within
        read = flat.gather(2, place.expand((samples, channels, -1)))
        parts.append(read.where(inside, 0.0) * weight)
    return sum(parts[1:], parts[0]).reshape((samples, channels, *grid.shape[1:-1]))


def _taps(x, n: int, mode: str, padding: str, corners: bool) -> list[tuple]:
    """The neighbours of points along one dimension: (index, weight, whether it is inside), each of the shape of x."""
    position = (x + 1) / 2 * (n - 1) if corners else ((x + 1) * n - 1) / 2
    if mode == "bicubic":
        first = position.detach().floor()
        t = position - first
        return [_tap(_brought_in(first + k, n, padding, corners), n, w) for k, w in zip(range(-1, 3), _cubic(t), strict=True)]
    position = _brought_in(position, n, padding, corners)
    if mode == "nearest":
        never = position.new_zeros((), dtype=dtypes.bool)
        return [_tap(position.detach().round(), n, position.where(never, 1.0))]  # its derivative is zero, but there is one
    first = position.detach().floor()
    return [_tap(first, n, first + 1 - position), _tap(first + 1, n, position - first)]


def _tap(place, n: int, weight) -> tuple:
    return place.to(dtypes.int64).clamp(0, n - 1), weight, (place >= 0) & (place <= n - 1)


def _brought_in(x, n: int, padding: str, corners: bool):
    """Positions outside of 0 ... n - 1 moved inside. What is moved to the border has no derivative."""
    if padding == "zeros":
        return x
    if padding == "reflection":
        low, span = (0.0, n - 1.0) if corners else (-0.5, float(n))
        if not span:
            return x * 0
        away = x - low
        away = away.where(away >= 0, -away)
        rest, flipped = away.fmod(span), (away / span).detach().floor() % 2 != 0
        x = (span - rest).where(flipped, rest) + low
    return x.where(x > 0, 0.0).where(x < n - 1, n - 1.0)


def _cubic(t) -> list:
    """The weights of four neighbours by cubic convolution, t the distance from the second."""
    s = 1 - t
    inner = [((A + 2) * d - (A + 3)) * d * d + 1 for d in (t, s)]
    return [A * t * s * s, *inner, A * s * t * t]


def _check(input, grid, mode: str) -> None:
    for name, found in (("input", input), ("grid", grid)):
        if found.dtype.category != dtypes.FLOAT:
            raise RuntimeError(f"grid_sampler(): expected {name} to have a floating-point dtype, but got {found.dtype}")
    if input.dtype is not grid.dtype:
        raise RuntimeError(
            f"grid_sampler(): expected input and grid to have same dtype, but input has {input.dtype} and grid has {grid.dtype}"
        )
    if input.dim() not in (4, 5) or input.dim() != grid.dim():
        wanted = "expected 4D or 5D input and grid with same number of dimensions"
        raise RuntimeError(f"grid_sampler(): {wanted}, but got input with sizes {list(input.shape)} and grid with sizes {list(grid.shape)}")
    if input.shape[0] != grid.shape[0]:
        raise RuntimeError(f"grid_sampler(): expected grid and input to have same batch size, but got {input.shape[0]} and {grid.shape[0]}")
    if grid.shape[-1] != input.dim() - 2:
        raise RuntimeError(
            f"grid_sampler(): expected grid to have size {input.dim() - 2} in last dimension, a coordinate for each dimension of places, but "
            f"got grid with sizes {list(grid.shape)}"
        )
    if 0 in input.shape[2:]:
        raise RuntimeError(f"grid_sampler(): expected input to have non-empty spatial dimensions, but got sizes {list(input.shape)}")
    if mode == "bicubic" and input.dim() == 5:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")


# -- the points of an affine map -------------------------------------------------------------------------------------------


@composite(method=False)
def affine_grid_generator(theta, size, align_corners):
    """theta times the points (x, y, 1) of a regular grid. (N, 2, 3), (N, C, H, W) -> (N, H, W, 2); with volumes (N, 3, 4) -> (N, D, H, W, 3)."""
    _, _, *sizes = size
    lines = [_line(theta, n, align_corners) for n in sizes]
    coordinates = [
        line.reshape([-1 if i == d else 1 for i in range(len(sizes))]).expand(sizes) for d, line in reversed(list(enumerate(lines)))
    ]
    points = stack([*coordinates, theta.new_ones(sizes)], -1).reshape((1, -1, len(sizes) + 1))  # (1, P, dims + 1)
    return points.matmul(theta.mT).reshape((theta.shape[0], *sizes, len(sizes)))


def _line(theta, n: int, corners: bool):
    """n points from -1 to 1: the centres of the outermost at the ends, or their edges."""
    if n <= 1:
        return theta.new_zeros(n)
    last = 1.0 if corners else (n - 1) / n
    return theta.new_tensor([last * (2 * i / (n - 1) - 1) for i in range(n)])


@composite(name="nn.functional.affine_grid", method=False)
def affine_grid(theta, size, align_corners=None):
    """The points at which grid_sample reads an affine map of its input. theta (N, 2, 3), size (N, C, H, W) -> (N, H, W, 2)."""
    if align_corners is None:
        warnings.warn("Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0.", stacklevel=3)
    if theta.dtype.category != dtypes.FLOAT:
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    size = [int(n) for n in size]
    dims = len(size) - 2
    if dims not in (2, 3):
        raise NotImplementedError(
            f"affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. Got size {size}."
        )
    if theta.dim() != 3 or tuple(theta.shape[1:]) != (dims, dims + 1):
        raise ValueError(
            f"Expected a batch of {dims}D affine matrices of shape Nx{dims}x{dims + 1} for size {size}. Got {tuple(theta.shape)}."
        )
    if theta.shape[0] != size[0] and theta.shape[0] != 1:
        raise RuntimeError(f"affine_grid: expected a matrix for each of {size[0]} samples, but got {theta.shape[0]}")
    if min(size) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {size}")
    return affine_grid_generator(theta, size, bool(align_corners))
