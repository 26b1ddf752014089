"""Pieces of images, of a size that is asked for: in the middle, anywhere, stretched; and margins around them."""

from __future__ import annotations

import math
from numbers import Number
from typing import Any

from flambeau import dtypes
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import empty, tensor
from flambeau.vision.transforms import functional as F
from flambeau.vision.transforms.base import Transform, chance, size_pair, uniform, whole
from flambeau.vision.transforms.functional.images import InterpolationMode, interpolation_mode

__all__ = ["CenterCrop", "FiveCrop", "Pad", "RandomCrop", "RandomErasing", "RandomResizedCrop", "Resize", "TenCrop"]

TWO = "Please provide only two dimensions (h, w) for size."


class Resize(Transform):
    """Another size (h, w); one number is the length of the shorter edge, and the other follows."""

    shown = ("size", "interpolation", "max_size", "antialias")

    def __init__(
        self,
        size: Any,
        interpolation: InterpolationMode = InterpolationMode.BILINEAR,
        max_size: int | None = None,
        antialias: bool | None = True,
    ):
        super().__init__()
        if not isinstance(size, (int, tuple, list)):
            raise TypeError(f"Size should be int or sequence. Got {type(size)}")
        if isinstance(size, (tuple, list)) and len(size) not in (1, 2):
            raise ValueError("If size is a sequence, it should have 1 or 2 values")
        self.size, self.max_size, self.antialias = size, max_size, antialias
        self.interpolation = interpolation_mode(interpolation)

    def forward(self, img: Any) -> Any:
        return F.resize(img, self.size, self.interpolation, self.max_size, self.antialias)


class CenterCrop(Transform):
    """The middle; a smaller image gets a margin of zeros first."""

    shown = ("size",)

    def __init__(self, size: Any):
        super().__init__()
        self.size = size_pair(size, TWO)

    def forward(self, img: Any) -> Any:
        return F.center_crop(img, self.size)


class Pad(Transform):
    """A margin: one number for all sides, (left/right, top/bottom) or (left, top, right, bottom)."""

    shown = ("padding", "fill", "padding_mode")

    def __init__(self, padding: Any, fill: Any = 0, padding_mode: str = "constant"):
        super().__init__()
        if not isinstance(padding, (Number, tuple, list)):
            raise TypeError("Got inappropriate padding arg")
        if not isinstance(fill, (Number, str, tuple, list)):
            raise TypeError("Got inappropriate fill arg")
        if padding_mode not in ("constant", "edge", "reflect", "symmetric"):
            raise ValueError("Padding mode should be either constant, edge, reflect or symmetric")
        if isinstance(padding, (tuple, list)) and len(padding) not in (1, 2, 4):
            raise ValueError(f"Padding must be an int or a 1, 2, or 4 element tuple, not a {len(padding)} element tuple")
        self.padding, self.fill, self.padding_mode = padding, fill, padding_mode

    def forward(self, img: Any) -> Any:
        return F.pad(img, self.padding, self.fill, self.padding_mode)


class RandomCrop(Transform):
    """A piece of the given size from anywhere, after an optional margin."""

    shown = ("size", "padding")

    def __init__(self, size: Any, padding: Any = None, pad_if_needed: bool = False, fill: Any = 0, padding_mode: str = "constant"):
        super().__init__()
        height, width = size_pair(size, TWO)
        self.size = (height, width)
        self.padding, self.pad_if_needed, self.fill, self.padding_mode = padding, pad_if_needed, fill, padding_mode

    @staticmethod
    def get_params(img: Any, output_size: tuple[int, int]) -> tuple[int, int, int, int]:
        """(top, left, height, width) of a piece."""
        _, h, w = F.get_dimensions(img)
        height, width = output_size
        if h < height or w < width:
            raise ValueError(f"Required crop size {(height, width)} is larger than input image size {(h, w)}")
        if (w, h) == (width, height):
            return 0, 0, h, w
        top = whole(0, h - height + 1)
        return top, whole(0, w - width + 1), height, width

    def forward(self, img: Any) -> Any:
        if self.padding is not None:
            img = F.pad(img, self.padding, self.fill, self.padding_mode)
        _, h, w = F.get_dimensions(img)
        if self.pad_if_needed and w < self.size[1]:
            img = F.pad(img, [self.size[1] - w, 0], self.fill, self.padding_mode)
        if self.pad_if_needed and h < self.size[0]:
            img = F.pad(img, [0, self.size[0] - h], self.fill, self.padding_mode)
        return F.crop(img, *self.get_params(img, self.size))


class RandomResizedCrop(Transform):
    """A piece of random size and proportions, stretched to the given size: the usual way to show a network images (Szegedy et al.)."""

    shown = ("size", "scale", "ratio", "interpolation", "antialias")

    def __init__(
        self,
        size: Any,
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: InterpolationMode = InterpolationMode.BILINEAR,
        antialias: bool | None = True,
    ):
        super().__init__()
        self.size = size_pair(size, TWO)
        for name, value in (("Scale", scale), ("Ratio", ratio)):
            if not isinstance(value, (tuple, list)):
                raise TypeError(f"{name} should be a sequence")
        self.scale, self.ratio, self.antialias = scale, ratio, antialias
        self.interpolation = interpolation_mode(interpolation)

    @staticmethod
    def get_params(img: Any, scale: Any, ratio: Any) -> tuple[int, int, int, int]:
        """(top, left, height, width): a part of the area between `scale`, of proportions between `ratio`; ten tries, then the middle."""
        _, h, w = F.get_dimensions(img)
        for _ in range(10):
            area = h * w * uniform(scale[0], scale[1])
            proportion = math.exp(uniform(math.log(ratio[0]), math.log(ratio[1])))
            width, height = round(math.sqrt(area * proportion)), round(math.sqrt(area / proportion))
            if 0 < width <= w and 0 < height <= h:
                top = whole(0, h - height + 1)
                return top, whole(0, w - width + 1), height, width
        width, height = w, h
        if w / h < min(ratio):
            height = round(w / min(ratio))
        elif w / h > max(ratio):
            width = round(h * max(ratio))
        return (h - height) // 2, (w - width) // 2, height, width

    def forward(self, img: Any) -> Any:
        box = self.get_params(img, self.scale, self.ratio)
        return F.resized_crop(img, *box, self.size, self.interpolation, antialias=self.antialias)

    def __repr__(self) -> str:
        rounded = {name: tuple(round(value, 4) for value in getattr(self, name)) for name in ("scale", "ratio")}
        return (
            f"RandomResizedCrop(size={self.size}, scale={rounded['scale']}, ratio={rounded['ratio']}, "
            f"interpolation={self.interpolation.value}, antialias={self.antialias})"
        )


class FiveCrop(Transform):
    """The four corners and the middle, as a tuple."""

    shown = ("size",)

    def __init__(self, size: Any):
        super().__init__()
        self.size = size_pair(size, TWO)

    def forward(self, img: Any) -> tuple[Any, ...]:
        return F.five_crop(img, self.size)


class TenCrop(Transform):
    """The corners and the middle of the image and of its mirror image, as a tuple."""

    shown = ("size", "vertical_flip")

    def __init__(self, size: Any, vertical_flip: bool = False):
        super().__init__()
        self.size, self.vertical_flip = size_pair(size, TWO), vertical_flip

    def forward(self, img: Any) -> tuple[Any, ...]:
        return F.ten_crop(img, self.size, self.vertical_flip)


class RandomErasing(Transform):
    """With probability p, a rectangle of a tensor is replaced by a value, by one for each channel, or by noise ("random").

    Zhong et al., Random Erasing Data Augmentation.
    """

    shown = ("p", "scale", "ratio", "value", "inplace")

    def __init__(
        self,
        p: float = 0.5,
        scale: tuple[float, float] = (0.02, 0.33),
        ratio: tuple[float, float] = (0.3, 3.3),
        value: Any = 0,
        inplace: bool = False,
    ):
        super().__init__()
        if not isinstance(value, (Number, str, tuple, list)):
            raise TypeError("Argument value should be either a number or str or a sequence")
        if isinstance(value, str) and value != "random":
            raise ValueError("If value is str, it should be 'random'")
        for name, pair in (("Scale", scale), ("Ratio", ratio)):
            if not isinstance(pair, (tuple, list)):
                raise TypeError(f"{name} should be a sequence")
        if scale[0] < 0 or scale[1] > 1:
            raise ValueError("Scale should be between 0 and 1")
        if not 0 <= p <= 1:
            raise ValueError("Random erasing probability should be between 0 and 1")
        self.p, self.scale, self.ratio, self.value, self.inplace = p, scale, ratio, value, inplace

    @staticmethod
    def get_params(img: Tensor, scale: Any, ratio: Any, value: list[float] | None = None) -> tuple[int, int, int, int, Tensor]:
        """(top, left, height, width, what to put there); the whole image, unchanged, where ten tries did not fit."""
        channels, h, w = img.shape[-3:]
        for _ in range(10):
            area = h * w * uniform(scale[0], scale[1])
            proportion = math.exp(uniform(math.log(ratio[0]), math.log(ratio[1])))
            height, width = round(math.sqrt(area * proportion)), round(math.sqrt(area / proportion))
            if not (height < h and width < w):
                continue
            if value is None:
                patch = empty([channels, height, width], dtype=dtypes.float32).normal_()
            else:
                patch = tensor(value)[:, None, None]
            top = whole(0, h - height + 1)
            return top, whole(0, w - width + 1), height, width, patch
        return 0, 0, h, w, img

    def forward(self, img: Tensor) -> Tensor:
        if chance() >= self.p:
            return img
        if isinstance(self.value, Number):
            value: list[float] | None = [float(self.value)]  # type: ignore[arg-type]
        else:
            value = None if isinstance(self.value, str) else [float(v) for v in self.value]
        if value is not None and len(value) not in (1, img.shape[-3]):
            raise ValueError(
                f"If value is a sequence, it should have either a single value or {img.shape[-3]} (number of input channels), not {len(value)}"
            )
        return F.erase(img, *self.get_params(img, self.scale, self.ratio, value), self.inplace)
