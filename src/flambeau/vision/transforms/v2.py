"""The names of torchvision.transforms.v2, for programs that pass one image at a time.

The classes are those of `transforms`; bounding boxes, masks and videos, which v2 transforms together with their image, are not known here.
"""

from __future__ import annotations

from typing import Any

from flambeau import dtypes
from flambeau.nn.modules.module import Module
from flambeau.tensor import Tensor
from flambeau.tensor.making.interop import from_numpy
from flambeau.vision.transforms import functional as functional
from flambeau.vision.transforms.base import Transform
from flambeau.vision.transforms.functional.conversions import convert_image_dtype, pil_to_tensor
from flambeau.vision.transforms.transforms import *
from flambeau.vision.transforms.transforms import __all__ as _names

__all__ = [*_names, "Identity", "RGB", "ToDtype", "ToImage", "ToPureTensor", "Transform", "functional"]


class Identity(Transform):
    """The image itself."""

    def forward(self, img: Any) -> Any:
        return img


class ToImage(Transform):
    """An image of Pillow, or an array (H, W, C), as a tensor (C, H, W) of the same numbers; a tensor stays what it is."""

    def forward(self, img: Any) -> Tensor:
        if isinstance(img, Tensor):
            return img
        if hasattr(img, "getbands"):
            return pil_to_tensor(img)
        array = img[:, :, None] if img.ndim == 2 else img
        return from_numpy(array).permute(2, 0, 1).contiguous()


class ToPureTensor(Identity):
    """A tensor: images are plain tensors here already."""


class ToDtype(Transform):
    """Another dtype; with scale=True white stays white (bytes become fractions from 0 to 1)."""

    shown = ("scale",)

    def __init__(self, dtype: dtypes.dtype, scale: bool = False):
        super().__init__()
        if not isinstance(dtype, dtypes.dtype):
            raise NotImplementedError(f"dtype is one dtype here, not one for each kind of image: {dtype!r}")
        self.dtype, self.scale = dtype, scale

    def forward(self, img: Tensor) -> Tensor:
        return convert_image_dtype(img, self.dtype) if self.scale else img.to(self.dtype)


class RGB(Module):
    """Three channels: a grey image's one is repeated."""

    def forward(self, img: Any) -> Any:
        return img if functional.get_dimensions(img)[0] == 3 else functional.rgb_to_grayscale(img, 3)
