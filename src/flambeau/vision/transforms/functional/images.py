"""What an image is: a tensor (..., C, H, W), an image of Pillow, or a Picture; and one function for all three.

    @on_images
    def hflip(img): ...         # on tensors, and so on Pictures

    @hflip.pillow
    def _(img): ...             # the same on Pillow's images

Bytes are computed with in floating point and rounded back.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import wraps
from typing import Any

import numpy as np

from flambeau import dtypes
from flambeau.tensor import Tensor
from flambeau.vision.picture import Picture, is_pillow_image

__all__ = ["InterpolationMode", "get_dimensions", "get_image_num_channels", "get_image_size", "pil_modes_mapping"]


class InterpolationMode(Enum):
    """How values between pixels are found. `box`, `hamming` and `lanczos` are for Pillow's images alone."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


# Pillow's numbers for the modes. They can be passed instead of a mode, as programs of old do.
pil_modes_mapping = {
    InterpolationMode.NEAREST: 0,
    InterpolationMode.LANCZOS: 1,
    InterpolationMode.BILINEAR: 2,
    InterpolationMode.BICUBIC: 3,
    InterpolationMode.BOX: 4,
    InterpolationMode.HAMMING: 5,
    InterpolationMode.NEAREST_EXACT: 0,
}
BY_NUMBER = {number: mode for mode, number in pil_modes_mapping.items() if mode is not InterpolationMode.NEAREST_EXACT}


def interpolation_mode(value: Any) -> InterpolationMode:
    """The mode, from itself or from Pillow's number for it."""
    if isinstance(value, InterpolationMode):
        return value
    if isinstance(value, int) and value in BY_NUMBER:
        return BY_NUMBER[value]
    raise TypeError(f"Argument interpolation should be a InterpolationMode or a corresponding Pillow integer constant, not {value!r}")


def on_images(of_tensors: Callable) -> Callable:
    """Make a function on tensors one on all kinds of images; its `pillow` decorates the form for Pillow's."""
    of_pillow: Callable | None = None

    @wraps(of_tensors)
    def of_any(img: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(img, Tensor):
            if img.dim() < 2:
                raise TypeError(f"Tensor is not a torch image: it has shape {tuple(img.shape)}, an image (..., C, H, W)")
            return of_tensors(img, *args, **kwargs)
        if is_pillow_image(img):
            return of_pillow(img, *args, **kwargs)
        if isinstance(img, Picture):
            result = of_tensors(img.tensor(), *args, **kwargs)
            return Picture.of(result) if isinstance(result, Tensor) else result
        raise TypeError(f"img should be PIL Image or Tensor. Got {type(img)}")

    def pillow(function: Callable) -> Callable:
        nonlocal of_pillow
        of_pillow = function
        return of_any

    of_any.pillow = pillow
    return of_any


# -- what an image says about itself -------------------------------------------------------------------------------


@on_images
def get_dimensions(img: Any) -> list[int]:
    """[channels, height, width]"""
    return [1 if img.dim() == 2 else img.shape[-3], *img.shape[-2:]]


@get_dimensions.pillow
def _(img: Any) -> list[int]:
    return [len(img.getbands()), img.height, img.width]


def get_image_num_channels(img: Any) -> int:
    return get_dimensions(img)[0]


def get_image_size(img: Any) -> list[int]:
    """[width, height]"""
    return get_dimensions(img)[:0:-1]


def largest(dtype: dtypes.dtype) -> float:
    """White: the largest value of an image of this dtype."""
    if dtype.is_floating_point or dtype is dtypes.bool:
        return 1
    return dtypes.iinfo(dtype).max


def check_channels(img: Tensor, allowed: tuple[int, ...]) -> None:
    channels = get_dimensions(img)[0]
    if channels not in allowed:
        raise TypeError(f"Input image tensor permitted channel values are {list(allowed)}, but found {channels}")


# -- computing in floating point what is stored in bytes -----------------------------------------------------------


def in_floats(function: Callable[[Tensor], Tensor], img: Tensor, dtype: dtypes.dtype = dtypes.float32) -> Tensor:
    """Apply a function of (N, C, H, W) in floating point to (C, H, W), (H, W) or more dimensions; whole numbers are rounded back."""
    keep = img.dtype in (dtypes.float32, dtypes.float64) if dtype is dtypes.float32 else img.dtype is dtype
    x = img if keep else img.to(dtype)
    result = function(x.reshape(-1, *([1] * (3 - x.dim())), *x.shape[-3:]))
    result = result[0, 0] if img.dim() == 2 else result.reshape(*img.shape[:-3], *result.shape[1:])
    if keep:
        return result
    return result.to(img.dtype) if img.dtype.is_floating_point else result.round().to(img.dtype)


def is_numpy_image(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim in (2, 3)
