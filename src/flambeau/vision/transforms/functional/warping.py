"""Images turned, moved, sheared and seen from an angle: each pixel of the result asks where in the image it comes from.

Positions are (x, y), counted from the middle of a tensor and from the upper left corner of one of Pillow's images.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from flambeau import dtypes
from flambeau.nn import functional as F
from flambeau.ops.joining import cat
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import full, ones, tensor
from flambeau.tensor.making.ranges import linspace
from flambeau.vision.picture import pillow
from flambeau.vision.transforms.functional.images import (
    InterpolationMode,
    get_dimensions,
    in_floats,
    interpolation_mode,
    on_images,
    pil_modes_mapping,
)
from flambeau.vision.transforms.functional.resizing import fill_colour

__all__ = ["affine", "perspective", "rotate"]


def rotate(
    img: Any,
    angle: float,
    interpolation: InterpolationMode = InterpolationMode.NEAREST,
    expand: bool = False,
    center: Any = None,
    fill: Any = None,
) -> Any:
    """Turned by an angle in degrees, counter-clockwise; `expand` makes the result large enough for the corners."""
    if not isinstance(angle, (int, float)):
        raise TypeError("Argument angle should be int or float")
    _check_center(center)
    return _rotate(img, angle, interpolation_mode(interpolation), expand, center, fill)


@on_images
def _rotate(img: Any, angle: float, mode: InterpolationMode, expand: bool, center: Any, fill: Any) -> Any:
    _, h, w = get_dimensions(img)
    matrix = inverse_affine(_from_the_middle(center, h, w), -angle, (0, 0), 1.0, (0.0, 0.0))
    out_h, out_w = _size_after(matrix, h, w) if expand else (h, w)
    return _warped(img, lambda dtype: _affine_grid(matrix, (h, w), (out_h, out_w), dtype), mode, fill)


@_rotate.pillow
def _(img: Any, angle: float, mode: InterpolationMode, expand: bool, center: Any, fill: Any) -> Any:
    return img.rotate(angle, pil_modes_mapping[mode], expand, center, fillcolor=fill_colour(fill, img))


def affine(
    img: Any,
    angle: float,
    translate: Sequence[int],
    scale: float,
    shear: Any,
    interpolation: InterpolationMode = InterpolationMode.NEAREST,
    fill: Any = None,
    center: Any = None,
) -> Any:
    """Sheared, enlarged, turned clockwise by an angle and moved; all angles in degrees, the middle stays in place unless it is moved."""
    if not isinstance(angle, (int, float)):
        raise TypeError("Argument angle should be int or float")
    if not isinstance(translate, (list, tuple)):
        raise TypeError("Argument translate should be a sequence")
    if len(translate) != 2:
        raise ValueError("Argument translate should be a sequence of length 2")
    if scale <= 0.0:
        raise ValueError("Argument scale should be positive")
    if not isinstance(shear, (int, float, list, tuple)):
        raise TypeError("Shear should be either a single value or a sequence of two values")
    shears = [shear, 0.0] if isinstance(shear, (int, float)) else [shear[0], shear[-1]]
    if not isinstance(shear, (int, float)) and len(shear) not in (1, 2):
        raise ValueError(f"Shear should be a sequence containing two values. Got {shear}")
    _check_center(center)
    return _affine(img, angle, list(translate), scale, shears, interpolation_mode(interpolation), fill, center)


@on_images
def _affine(img: Any, angle: float, translate: list, scale: float, shears: list, mode: InterpolationMode, fill: Any, center: Any) -> Any:
    _, h, w = get_dimensions(img)
    matrix = inverse_affine(_from_the_middle(center, h, w), angle, [1.0 * t for t in translate], scale, shears)
    return _warped(img, lambda dtype: _affine_grid(matrix, (h, w), (h, w), dtype), mode, fill)


@_affine.pillow
def _(img: Any, angle: float, translate: list, scale: float, shears: list, mode: InterpolationMode, fill: Any, center: Any) -> Any:
    _, h, w = get_dimensions(img)
    matrix = inverse_affine(center or [w * 0.5, h * 0.5], angle, translate, scale, shears)
    return img.transform(img.size, pillow().Transform.AFFINE, matrix, pil_modes_mapping[mode], fillcolor=fill_colour(fill, img))


def perspective(
    img: Any,
    startpoints: Sequence[Sequence[int]],
    endpoints: Sequence[Sequence[int]],
    interpolation: InterpolationMode = InterpolationMode.BILINEAR,
    fill: Any = None,
) -> Any:
    """The image seen from an angle: four points (x, y), usually its corners, appear at four other places."""
    return _perspective(img, _perspective_coefficients(startpoints, endpoints), interpolation_mode(interpolation), fill)


@on_images
def _perspective(img: Any, coefficients: list[float], mode: InterpolationMode, fill: Any) -> Any:
    size = tuple(get_dimensions(img)[1:])
    return _warped(img, lambda dtype: _perspective_grid(coefficients, size, dtype), mode, fill)


@_perspective.pillow
def _(img: Any, coefficients: list[float], mode: InterpolationMode, fill: Any) -> Any:
    return img.transform(img.size, pillow().Transform.PERSPECTIVE, coefficients, pil_modes_mapping[mode], fillcolor=fill_colour(fill, img))


# -- geometry ------------------------------------------------------------------------------------------------------


def inverse_affine(center: Sequence[float], angle: float, translate: Sequence[float], scale: float, shear: Sequence[float]) -> list[float]:
    """[a, b, c, d, e, f]: the pixel (x, y) of the result comes from (ax + by + c, dx + ey + f).

    The way there is  T(center) T(translate) R(angle) Shear(y) Shear(x) scale T(-center);  this is its inverse. The determinant of rotation
    and shears is 1, so that their inverse is their adjugate.
    """
    turn, sx, sy = math.radians(angle), math.radians(shear[0]), math.radians(shear[1])
    a = math.cos(turn - sy) / math.cos(sy)
    b = -math.cos(turn - sy) * math.tan(sx) / math.cos(sy) - math.sin(turn)
    c = math.sin(turn - sy) / math.cos(sy)
    d = -math.sin(turn - sy) * math.tan(sx) / math.cos(sy) + math.cos(turn)
    rows = [(d / scale, -b / scale), (-c / scale, a / scale)]
    x, y = -center[0] - translate[0], -center[1] - translate[1]
    return [value for (p, q), middle in zip(rows, center, strict=True) for value in (p, q, p * x + q * y + middle)]


def _from_the_middle(center: Any, h: int, w: int) -> list[float]:
    return [0.0, 0.0] if center is None else [1.0 * (c - size * 0.5) for c, size in zip(center, (w, h), strict=True)]


def _check_center(center: Any) -> None:
    if center is not None and not isinstance(center, (list, tuple)):
        raise TypeError("Argument center should be a sequence")
    if center is not None and len(center) != 2:
        raise ValueError(f"Argument center should be a sequence of two numbers (x, y), not {center}")


def _size_after(matrix: list[float], h: int, w: int) -> tuple[int, int]:
    """(h, w) of the smallest image that holds the turned one. A corner that misses a pixel by rounding alone does not count."""
    corners = np.array([[x * w, y * h, 1.0] for x in (-0.5, 0.5) for y in (-0.5, 0.5)], dtype=np.float32)
    places = corners @ np.array(matrix, dtype=np.float32).reshape(2, 3).T + np.array([w * 0.5, h * 0.5], dtype=np.float32)
    near = 1e-4
    low, high = (np.trunc(ends / near) * near for ends in (places.min(axis=0), places.max(axis=0)))
    across, down = np.ceil(high) - np.floor(low)
    return int(down), int(across)


def _pixel_centres(h: int, w: int, first_x: float, first_y: float, dtype: dtypes.dtype) -> Tensor:
    """(x, y, 1) of every pixel. -> (1, h * w, 3)"""
    x = linspace(first_x, first_x + w - 1, w, dtype=dtype).expand(h, w)
    y = linspace(first_y, first_y + h - 1, h, dtype=dtype).unsqueeze(-1).expand(h, w)
    grid = ones(1, h, w, 3, dtype=dtype)
    grid[0, :, :, 0], grid[0, :, :, 1] = x, y
    return grid.view(1, h * w, 3)


def _affine_grid(matrix: list[float], old: tuple[int, int], new: tuple[int, int], dtype: dtypes.dtype) -> Tensor:
    """Where each pixel comes from, with the edges of the image at -1 and 1. -> (1, h, w, 2)"""
    h, w = new
    centres = _pixel_centres(h, w, -w * 0.5 + 0.5, -h * 0.5 + 0.5, dtype)
    theta = tensor(matrix, dtype=dtype).view(1, 2, 3).mT / tensor([0.5 * old[1], 0.5 * old[0]], dtype=dtype)
    return centres.bmm(theta).view(1, h, w, 2)


def _perspective_coefficients(startpoints: Sequence[Sequence[int]], endpoints: Sequence[Sequence[int]]) -> list[float]:
    """[a..h]: (x, y) of the result comes from (ax + by + c, dx + ey + f) / (gx + hy + 1)."""
    if len(startpoints) != 4 or len(endpoints) != 4:
        raise ValueError(f"Please provide exactly four corners, got {len(startpoints)} startpoints and {len(endpoints)} endpoints.")
    rows, goals = [], []
    for (x, y), (u, v) in zip(endpoints, startpoints, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        goals += [u, v]
    solution = np.linalg.lstsq(np.array(rows, dtype=np.float64), np.array(goals, dtype=np.float64), rcond=None)[0]
    return solution.astype(np.float32).tolist()


def _perspective_grid(coefficients: list[float], size: tuple[int, int], dtype: dtypes.dtype) -> Tensor:
    h, w = size
    a, b, c, d, e, f, g, i = coefficients
    centres = _pixel_centres(h, w, 0.5, 0.5, dtype)
    above = tensor([[[a, b, c], [d, e, f]]], dtype=dtype).mT / tensor([0.5 * w, 0.5 * h], dtype=dtype)
    below = tensor([[[g, i, 1.0], [g, i, 1.0]]], dtype=dtype)
    return (centres.bmm(above) / centres.bmm(below.mT) - 1.0).view(1, h, w, 2)


# -- sampling ------------------------------------------------------------------------------------------------------


def _warped(img: Tensor, grid_of: Any, mode: InterpolationMode, fill: Any) -> Tensor:
    if mode.value not in ("nearest", "bilinear"):
        raise ValueError(f"Resampling mode '{mode.value}' is unsupported with Tensor input: nearest and bilinear are")
    channels = get_dimensions(img)[0]
    colours = None if fill is None else [float(f) for f in fill] if isinstance(fill, (tuple, list)) else [float(fill)]
    if colours is not None and len(colours) not in (1, channels):
        raise ValueError(
            f"The number of elements in 'fill' cannot broadcast to match the number of channels of the image ({len(colours)} != {channels})"
        )
    dtype = img.dtype if img.is_floating_point() else dtypes.float32
    return in_floats(lambda x: _sampled(x, grid_of(dtype).to(x.device), mode.value, colours), img, dtype)


def _sampled(x: Tensor, grid: Tensor, mode: str, colours: list[float] | None) -> Tensor:
    """The image at the places of the grid; what lies outside is zero or, with colours, they."""
    n, channels, h, w = x.shape
    grid = grid.expand(n, -1, -1, -1)
    if colours is None:
        return F.grid_sample(x, grid, mode=mode, padding_mode="zeros", align_corners=False)
    # One more channel, of ones, is sampled along: it says how much of each pixel comes from inside.
    x = F.grid_sample(
        cat([x, ones(n, 1, h, w, dtype=x.dtype, device=x.device)], 1), grid, mode=mode, padding_mode="zeros", align_corners=False
    )
    x, inside = x[:, :-1], x[:, -1:].expand(-1, channels, -1, -1)
    background = full((1, channels, 1, 1), 0.0, dtype=x.dtype, device=x.device)
    background[0, :, 0, 0] = tensor(colours, dtype=x.dtype, device=x.device)
    if mode == "nearest":
        return x.where(inside >= 0.5, background)
    return x * inside + (1.0 - inside) * background
