"""Images made smaller, larger, or cut out of others, and mirrored."""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau import dtypes
from flambeau.nn import functional as F
from flambeau.tensor import Tensor
from flambeau.vision.picture import pillow
from flambeau.vision.transforms.functional.images import (
    InterpolationMode,
    get_dimensions,
    in_floats,
    interpolation_mode,
    on_images,
    pil_modes_mapping,
)

__all__ = ["center_crop", "crop", "erase", "five_crop", "hflip", "pad", "resize", "resized_crop", "ten_crop", "vflip"]

# -- size ----------------------------------------------------------------------------------------------------------


def resize(
    img: Any,
    size: Any,
    interpolation: InterpolationMode = InterpolationMode.BILINEAR,
    max_size: int | None = None,
    antialias: bool | None = True,
) -> Any:
    """The image in another size (h, w); one number is the length of the shorter edge, and the other follows.

    Tensors are smoothed before they shrink, like Pillow's images, unless antialias=False; the two differ by rounding.
    """
    mode = interpolation_mode(interpolation)
    sizes = list(size) if isinstance(size, (list, tuple)) else [size]
    if len(sizes) > 2:
        raise ValueError(f"Size must be an int or a 1 or 2 element tuple/list, not a {len(sizes)} element tuple/list")
    if max_size is not None and len(sizes) != 1:
        raise ValueError("max_size should only be passed if size specifies the length of the smaller edge, i.e. size should be an int")
    old = get_dimensions(img)[1:]
    new = _size_by_edge(old, sizes[0], max_size) if len(sizes) == 1 else sizes
    return img if new == old else _resize(img, new, mode, bool(antialias))


def _size_by_edge(old: list[int], size: int, max_size: int | None) -> list[int]:
    """[h, w] with `size` for the shorter edge, or less where the longer would exceed `max_size`; proportions are kept."""
    if max_size is not None and max_size <= size:
        raise ValueError(f"max_size = {max_size} must be strictly greater than the requested size for the smaller edge size = {size}")
    short, long = sorted(old)
    other = int(size * long / short)
    if max_size is not None and other > max_size:
        size, other = int(max_size * size / other), max_size
    return [other, size] if old[1] <= old[0] else [size, other]


@on_images
def _resize(img: Any, size: list[int], mode: InterpolationMode, antialias: bool) -> Any:
    if mode.value not in ("nearest", "nearest-exact", "bilinear", "bicubic"):
        raise ValueError(f"tensors are resized by nearest, nearest-exact, bilinear or bicubic, not by {mode.value}: try an image")
    smooth = mode.value in ("bilinear", "bicubic")

    def resized(x: Tensor) -> Tensor:
        result = F.interpolate(x, size, mode=mode.value, align_corners=False if smooth else None, antialias=antialias and smooth)
        return result.clamp(0, 255) if mode.value == "bicubic" and img.dtype is dtypes.uint8 else result

    return in_floats(resized, img)


@_resize.pillow
def _(img: Any, size: list[int], mode: InterpolationMode, antialias: bool) -> Any:
    return img.resize((size[1], size[0]), pil_modes_mapping[mode])


# -- margins -------------------------------------------------------------------------------------------------------


def pad(img: Any, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> Any:
    """Margins around an image: one number for all, (left/right, top/bottom) or (left, top, right, bottom). Negative ones cut."""
    if not isinstance(padding, (int, tuple, list)):
        raise TypeError(f"Got inappropriate padding arg: {type(padding)}")
    sides = [padding] if isinstance(padding, int) else list(padding)
    if len(sides) not in (1, 2, 4):
        raise ValueError(f"Padding must be an int or a 1, 2, or 4 element tuple, not a {len(sides)} element tuple")
    if padding_mode not in ("constant", "edge", "reflect", "symmetric"):
        raise ValueError("Padding mode should be either constant, edge, reflect or symmetric")
    left, top, right, bottom = sides if len(sides) == 4 else [sides[0], sides[-1]] * 2
    return _pad(img, [left, top, right, bottom], fill, padding_mode)


@on_images
def _pad(img: Any, sides: list[int], fill: Any, mode: str) -> Any:
    left, top, right, bottom = sides
    if mode == "symmetric":
        rows, columns = _mirrored(img.shape[-2], top, bottom), _mirrored(img.shape[-1], left, right)
        return img[..., rows, :][..., columns]
    if mode == "constant":
        if not isinstance(fill, (int, float, type(None))):
            raise TypeError(f"Got inappropriate fill arg: a tensor is padded with one number, not with {fill}")
        return F.pad(img, [left, right, top, bottom], value=fill or 0)
    how = {"edge": "replicate"}.get(mode, mode)
    x = img if img.dtype in (dtypes.float32, dtypes.float64) else img.to(dtypes.float32)
    padded = F.pad(x.reshape(-1, *([1] * (3 - x.dim())), *x.shape[-3:]), [left, right, top, bottom], mode=how)
    return padded.reshape(*img.shape[:-2], *padded.shape[-2:]).to(img.dtype)


def _mirrored(n: int, before: int, after: int) -> list[int]:
    """0 .. n - 1 with its mirror image on both sides, the ends repeated; negative margins cut."""
    places = np.pad(np.arange(n), (max(before, 0), max(after, 0)), mode="symmetric")
    return places[max(-before, 0) : len(places) - max(-after, 0)].tolist()


@_pad.pillow
def _(img: Any, sides: list[int], fill: Any, mode: str) -> Any:
    left, top, right, bottom = sides
    if mode == "constant":
        colour = fill_colour(fill, img)
        expanded = pillow("ImageOps").expand(img, border=tuple(sides), fill=colour)
        if img.mode == "P" and img.getpalette() is not None:
            expanded.putpalette(img.getpalette())
        return expanded
    cut = [min(side, 0) for side in sides]
    img = img.crop((-cut[0], -cut[1], img.width + cut[2], img.height + cut[3])) if any(cut) else img
    left, top, right, bottom = (max(side, 0) for side in sides)
    array = np.asarray(img)
    padded = np.pad(array, [(top, bottom), (left, right), (0, 0)][: array.ndim], mode=mode)  # type: ignore[call-overload]
    result = pillow().fromarray(padded)
    if img.mode == "P":
        result.putpalette(img.getpalette())
    return result


def fill_colour(fill: Any, img: Any) -> Any:
    """What Pillow is told to fill an image with, from a number for all bands or one for each."""
    bands = len(img.getbands())
    colour = [0 if fill is None else fill] if isinstance(fill, (int, float, type(None))) else fill
    if not isinstance(colour, (tuple, list)):
        raise TypeError(f"Got inappropriate fill arg: {type(fill)}")
    if len(colour) not in (1, bands):
        raise ValueError(f"The number of elements in 'fill' does not match the number of channels of the image ({len(colour)} != {bands})")
    colour = tuple(float(value) if img.mode == "F" else int(value) for value in colour)
    return colour[0] if bands == 1 else colour * (bands // len(colour))


# -- pieces --------------------------------------------------------------------------------------------------------


@on_images
def crop(img: Any, top: int, left: int, height: int, width: int) -> Any:
    """The piece of this size whose upper left corner is (top, left); what lies outside of the image is 0."""
    _, h, w = get_dimensions(img)
    inside = img[..., max(top, 0) : max(top + height, 0), max(left, 0) : max(left + width, 0)]
    if top >= 0 and left >= 0 and top + height <= h and left + width <= w:
        return inside
    missing = [
        max(min(left + width, 0) - left, 0),
        max(left + width - max(w, left), 0),
        max(min(top + height, 0) - top, 0),
        max(top + height - max(h, top), 0),
    ]
    return F.pad(inside, missing)


@crop.pillow
def _(img: Any, top: int, left: int, height: int, width: int) -> Any:
    return img.crop((left, top, left + width, top + height))


def center_crop(img: Any, output_size: Any) -> Any:
    """The middle of an image; a smaller image gets a margin of zeros first."""
    height, width = pair(output_size)
    _, h, w = get_dimensions(img)
    if width > w or height > h:
        across, down = max(width - w, 0), max(height - h, 0)
        img = pad(img, [across // 2, down // 2, (across + 1) // 2, (down + 1) // 2])
        _, h, w = get_dimensions(img)
        if (w, h) == (width, height):
            return img
    return crop(img, round((h - height) / 2.0), round((w - width) / 2.0), height, width)


def resized_crop(
    img: Any,
    top: int,
    left: int,
    height: int,
    width: int,
    size: Any,
    interpolation: InterpolationMode = InterpolationMode.BILINEAR,
    antialias: bool | None = True,
) -> Any:
    """A piece of an image, in another size."""
    return resize(crop(img, top, left, height, width), size, interpolation, antialias=antialias)


def five_crop(img: Any, size: Any) -> tuple[Any, ...]:
    """The four corners and the middle: (upper left, upper right, lower left, lower right, middle)."""
    height, width = pair(size)
    _, h, w = get_dimensions(img)
    if width > w or height > h:
        raise ValueError(f"Requested crop size {(height, width)} is bigger than input size {(h, w)}")
    corners = [(0, 0), (0, w - width), (h - height, 0), (h - height, w - width)]
    return (*(crop(img, top, left, height, width) for top, left in corners), center_crop(img, [height, width]))


def ten_crop(img: Any, size: Any, vertical_flip: bool = False) -> tuple[Any, ...]:
    """`five_crop` of the image and of its mirror image."""
    size = pair(size)
    return five_crop(img, size) + five_crop(vflip(img) if vertical_flip else hflip(img), size)


def pair(size: Any, message: str = "Please provide only two dimensions (h, w) for size.") -> list[int]:
    """[h, w] of a number, a list of one or a list of two."""
    sizes = list(size) if isinstance(size, (tuple, list)) else [size]
    if len(sizes) not in (1, 2):
        raise ValueError(message)
    return [int(sizes[0]), int(sizes[-1])]


# -- mirror images -------------------------------------------------------------------------------------------------


@on_images
def hflip(img: Any) -> Any:
    """Left and right exchanged."""
    return img.flip(-1)


@hflip.pillow
def _(img: Any) -> Any:
    return img.transpose(pillow().Transpose.FLIP_LEFT_RIGHT)


@on_images
def vflip(img: Any) -> Any:
    """Above and below exchanged."""
    return img.flip(-2)


@vflip.pillow
def _(img: Any) -> Any:
    return img.transpose(pillow().Transpose.FLIP_TOP_BOTTOM)


@on_images
def erase(img: Any, i: int, j: int, h: int, w: int, v: Tensor, inplace: bool = False) -> Any:
    """The rectangle of h x w pixels at row i, column j replaced by `v`."""
    result = img if inplace else img.clone()
    result[..., i : i + h, j : j + w] = v
    return result


@erase.pillow
def _(img: Any, *args: Any, **kwargs: Any) -> Any:
    raise TypeError(f"img should be Tensor Image. Got {type(img)}: put ToTensor() before it")
