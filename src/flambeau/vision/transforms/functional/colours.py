"""Brightness, contrast, colour: each pixel changed by its own value, and by what the whole image looks like.

Most are a blend of the image with another: black, its mean grey, its greys, itself blurred. Factor 1 is the image, 0 the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau import dtypes
from flambeau.nn import functional as F
from flambeau.ops.joining import stack
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import full, zeros_like
from flambeau.vision.picture import Picture, is_pillow_image, pillow
from flambeau.vision.transforms.functional.conversions import convert_image_dtype
from flambeau.vision.transforms.functional.images import check_channels, get_dimensions, in_floats, largest, on_images

__all__ = [
    "adjust_brightness", "adjust_contrast", "adjust_gamma", "adjust_hue", "adjust_saturation", "adjust_sharpness", "autocontrast",
    "equalize", "invert", "posterize", "rgb_to_grayscale", "solarize", "to_grayscale",
]  # fmt: skip

# -- blends --------------------------------------------------------------------------------------------------------


def _blend(img: Tensor, other: Tensor, factor: float) -> Tensor:
    factor = float(factor)  # a whole number times a byte would be a byte, and wrap around
    return (factor * img + (1.0 - factor) * other).clamp(0, largest(img.dtype)).to(img.dtype)


def _check_factor(name: str, factor: float) -> None:
    if factor < 0:
        raise ValueError(f"{name} ({factor}) is not non-negative.")


@on_images
def adjust_brightness(img: Any, brightness_factor: float) -> Any:
    """Blended with black: 0 is black, 1 the image, 2 twice as bright."""
    _check_factor("brightness_factor", brightness_factor)
    check_channels(img, (1, 3))
    return _blend(img, zeros_like(img), brightness_factor)


@adjust_brightness.pillow
def _(img: Any, brightness_factor: float) -> Any:
    return pillow("ImageEnhance").Brightness(img).enhance(brightness_factor)


@on_images
def adjust_contrast(img: Any, contrast_factor: float) -> Any:
    """Blended with its mean grey: 0 is plain grey, 1 the image, 2 twice the contrast."""
    _check_factor("contrast_factor", contrast_factor)
    check_channels(img, (1, 3))
    grey = _grey(img) if get_dimensions(img)[0] == 3 else img
    mean = grey.to(img.dtype if img.is_floating_point() else dtypes.float32).mean(dim=(-3, -2, -1), keepdim=True)
    return _blend(img, mean, contrast_factor)


@adjust_contrast.pillow
def _(img: Any, contrast_factor: float) -> Any:
    return pillow("ImageEnhance").Contrast(img).enhance(contrast_factor)


@on_images
def adjust_saturation(img: Any, saturation_factor: float) -> Any:
    """Blended with its greys: 0 is grey, 1 the image, 2 twice as colourful."""
    _check_factor("saturation_factor", saturation_factor)
    check_channels(img, (1, 3))
    return img if get_dimensions(img)[0] == 1 else _blend(img, _grey(img), saturation_factor)


@adjust_saturation.pillow
def _(img: Any, saturation_factor: float) -> Any:
    return pillow("ImageEnhance").Color(img).enhance(saturation_factor)


@on_images
def adjust_sharpness(img: Any, sharpness_factor: float) -> Any:
    """Blended with itself blurred: 0 is blurred, 1 the image, 2 sharper."""
    _check_factor("sharpness_factor", sharpness_factor)
    check_channels(img, (1, 3))
    if min(img.shape[-2:]) <= 2:
        return img
    return _blend(img, in_floats(_smoothed, img, img.dtype if img.is_floating_point() else dtypes.float32), sharpness_factor)


def _smoothed(x: Tensor) -> Tensor:
    """The mean of each pixel and its eight neighbours, where the pixel itself counts five times; the border stays."""
    kernel = full((3, 3), 1.0, dtype=x.dtype, device=x.device)
    kernel[1, 1] = 5.0
    result = x.clone()
    result[..., 1:-1, 1:-1] = F.conv2d(x, (kernel / kernel.sum()).expand(x.shape[1], 1, 3, 3), groups=x.shape[1])
    return result


@adjust_sharpness.pillow
def _(img: Any, sharpness_factor: float) -> Any:
    return pillow("ImageEnhance").Sharpness(img).enhance(sharpness_factor)


# -- hue and gamma -------------------------------------------------------------------------------------------------


def adjust_hue(img: Any, hue_factor: float) -> Any:
    """Colours moved around the circle of hues, by a part of it from -0.5 to 0.5."""
    if not -0.5 <= hue_factor <= 0.5:
        raise ValueError(f"hue_factor ({hue_factor}) is not in [-0.5, 0.5].")
    return _adjust_hue(img, hue_factor)


@on_images
def _adjust_hue(img: Any, hue_factor: float) -> Any:
    check_channels(img, (1, 3))
    if get_dimensions(img)[0] == 1:
        return img
    hue, saturation, value = _hsv(convert_image_dtype(img, dtypes.float32)).unbind(-3)
    return convert_image_dtype(_rgb((hue + hue_factor) % 1.0, saturation, value), img.dtype)


def _hsv(img: Tensor) -> Tensor:
    """Hue (a part of the circle, red at 0), saturation and value of red, green and blue. (..., 3, H, W) -> the same"""
    red, green, blue = img.unbind(-3)
    value = img.amax(dim=-3)
    spread = value - img.amin(dim=-3)
    grey = spread == 0
    one = zeros_like(value) + 1
    saturation = spread / one.where(grey, value)
    width = one.where(grey, spread)
    from_red, from_green, from_blue = (green - blue) / width, 2.0 + (blue - red) / width, 4.0 + (red - green) / width
    hue = from_red.where(value == red, from_green.where(value == green, from_blue))
    return stack([(hue / 6.0 + 1.0) % 1.0, saturation, value], -3)


def _rgb(hue: Tensor, saturation: Tensor, value: Tensor) -> Tensor:
    """A channel is `value` for the third of the circle around its own hue, fades over a sixth on both sides, and is darkest across."""

    def channel(turn: int) -> Tensor:
        place = (hue * 6.0 + turn) % 6.0
        return value - value * saturation * place.minimum(4.0 - place).clamp(0, 1)

    return stack([channel(5), channel(3), channel(1)], -3)


@_adjust_hue.pillow
def _(img: Any, hue_factor: float) -> Any:
    if img.mode in ("L", "1", "I", "F"):
        return img
    hue, saturation, value = img.convert("HSV").split()
    turned = np.asarray(hue) + np.int32(hue_factor * 255).astype(np.uint8)  # bytes go around, as hues do
    return pillow().merge("HSV", (pillow().fromarray(turned), saturation, value)).convert(img.mode)


@on_images
def adjust_gamma(img: Any, gamma: float, gain: float = 1) -> Any:
    """gain * img ** gamma, for fractions from 0 to 1: above 1 the shadows get darker, below 1 lighter."""
    _check_factor("gamma", gamma)
    x = img if img.is_floating_point() else convert_image_dtype(img, dtypes.float32)
    return convert_image_dtype((gain * x**gamma).clamp(0, 1), img.dtype)


@adjust_gamma.pillow
def _(img: Any, gamma: float, gain: float = 1) -> Any:
    _check_factor("gamma", gamma)
    table = [int((255 + 1 - 1e-3) * gain * pow(level / 255.0, gamma)) for level in range(256)]
    return img.convert("RGB").point(table * 3).convert(img.mode)


# -- grey ----------------------------------------------------------------------------------------------------------


def _grey(img: Tensor) -> Tensor:
    """Luma as television has it (Rec. 601). (..., 3, H, W) -> (..., 1, H, W)"""
    red, green, blue = img.unbind(-3)
    return (0.2989 * red + 0.587 * green + 0.114 * blue).to(img.dtype).unsqueeze(-3)


@on_images
def rgb_to_grayscale(img: Any, num_output_channels: int = 1) -> Any:
    """Greys instead of colours, in one channel or in three equal ones."""
    if num_output_channels not in (1, 3):
        raise ValueError("num_output_channels should be either 1 or 3")
    check_channels(img, (1, 3))
    grey = _grey(img) if get_dimensions(img)[0] == 3 else img
    return grey.expand(*img.shape[:-3], 3, *img.shape[-2:]).clone() if num_output_channels == 3 else grey


@rgb_to_grayscale.pillow
def _(img: Any, num_output_channels: int = 1) -> Any:
    if num_output_channels not in (1, 3):
        raise ValueError("num_output_channels should be either 1 or 3")
    grey = img.convert("L")
    return grey if num_output_channels == 1 else pillow().merge("RGB", (grey, grey, grey))


def to_grayscale(img: Any, num_output_channels: int = 1) -> Any:
    """`rgb_to_grayscale`, of an image of Pillow in any mode."""
    if is_pillow_image(img) or isinstance(img, Picture):
        return rgb_to_grayscale(img, num_output_channels)
    raise TypeError("Input should be PIL Image")


# -- levels --------------------------------------------------------------------------------------------------------


@on_images
def invert(img: Any) -> Any:
    """Black for white."""
    return largest(img.dtype) - img


@invert.pillow
def _(img: Any) -> Any:
    return pillow("ImageOps").invert(img)


def posterize(img: Any, bits: int) -> Any:
    """Only the highest bits of each channel, 0 to 8."""
    if not 0 <= bits <= 8:
        raise ValueError(f"The number if bits should be between 0 and 8. Got {bits}")
    return _posterize(img, bits)


@on_images
def _posterize(img: Any, bits: int) -> Any:
    if img.dtype is not dtypes.uint8:
        raise TypeError(f"Only torch.uint8 image tensors are supported, but found {img.dtype}")
    return img & (256 - 2 ** (8 - bits))


@_posterize.pillow
def _(img: Any, bits: int) -> Any:
    return pillow("ImageOps").posterize(img, bits)


@on_images
def solarize(img: Any, threshold: float) -> Any:
    """Inverted where it is at least as bright as the threshold."""
    if threshold > largest(img.dtype):
        raise TypeError("Threshold should be less than bound of img.")
    return (largest(img.dtype) - img).where(img >= threshold, img)


@solarize.pillow
def _(img: Any, threshold: float) -> Any:
    return pillow("ImageOps").solarize(img, threshold)


@on_images
def autocontrast(img: Any) -> Any:
    """Each channel stretched so that its darkest pixel is black and its brightest white."""
    white = largest(img.dtype)
    x = img if img.is_floating_point() else img.to(dtypes.float32)
    low, high = x.amin(dim=(-2, -1), keepdim=True), x.amax(dim=(-2, -1), keepdim=True)
    scale = (high - low).reciprocal() * white
    plain = ~scale.isfinite()  # one colour only: nothing to stretch
    low, scale = low.masked_fill(plain, 0), scale.masked_fill(plain, 1)
    return ((x - low) * scale).clamp(0, white).to(img.dtype)


@autocontrast.pillow
def _(img: Any) -> Any:
    return pillow("ImageOps").autocontrast(img)


@on_images
def equalize(img: Any) -> Any:
    """Levels moved so that each is about equally frequent in every channel."""
    if img.dtype is not dtypes.uint8:
        raise TypeError(f"Only torch.uint8 image tensors are supported, but found {img.dtype}")
    channels = img.reshape(-1, *img.shape[-2:])
    return stack([_equalized(channel) for channel in channels]).view(img.shape)


def _equalized(channel: Tensor) -> Tensor:
    counts = channel.view(-1).bincount(minlength=256)
    step = int(counts[counts != 0][:-1].sum()) // 255
    if step == 0:
        return channel
    below = counts.cumsum(0) - counts  # how many pixels are darker than each level
    table = ((below + step // 2) // step).clamp(0, 255)
    table[0] = 0
    return table.to(dtypes.uint8)[channel.long()]


@equalize.pillow
def _(img: Any) -> Any:
    return pillow("ImageOps").equalize(img)
