"""The transforms as plain functions, on tensors (..., C, H, W), Pillow's images and Pictures, with torchvision's names."""

from __future__ import annotations

from flambeau.vision.transforms.functional.blurring import gaussian_blur
from flambeau.vision.transforms.functional.colours import (
    adjust_brightness,
    adjust_contrast,
    adjust_gamma,
    adjust_hue,
    adjust_saturation,
    adjust_sharpness,
    autocontrast,
    equalize,
    invert,
    posterize,
    rgb_to_grayscale,
    solarize,
    to_grayscale,
)
from flambeau.vision.transforms.functional.conversions import convert_image_dtype, normalize, pil_to_tensor, to_pil_image, to_tensor
from flambeau.vision.transforms.functional.images import (
    InterpolationMode,
    get_dimensions,
    get_image_num_channels,
    get_image_size,
    pil_modes_mapping,
)
from flambeau.vision.transforms.functional.resizing import (
    center_crop,
    crop,
    erase,
    five_crop,
    hflip,
    pad,
    resize,
    resized_crop,
    ten_crop,
    vflip,
)
from flambeau.vision.transforms.functional.warping import affine, perspective, rotate

__all__ = [
    "InterpolationMode", "adjust_brightness", "adjust_contrast", "adjust_gamma", "adjust_hue", "adjust_saturation", "adjust_sharpness",
    "affine", "autocontrast", "center_crop", "convert_image_dtype", "crop", "equalize", "erase", "five_crop", "gaussian_blur",
    "get_dimensions", "get_image_num_channels", "get_image_size", "hflip", "invert", "normalize", "pad", "perspective", "pil_modes_mapping",
    "pil_to_tensor", "posterize", "resize", "resized_crop", "rgb_to_grayscale", "rotate", "solarize", "ten_crop", "to_grayscale",
    "to_pil_image", "to_tensor", "vflip",
]  # fmt: skip
