"""Images: Pillow's where Pillow is installed, and otherwise `Picture`, which is just large enough to be transformed into a tensor.

Pillow is imported when an image is first made, and never by asking whether something is one.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from flambeau.tensor import Tensor
from flambeau.tensor.making.interop import from_numpy


class Picture:
    """A grey (H, W) or coloured (H, W, 3) image of bytes, for machines without Pillow. Transforms take it like one of Pillow's images.

    >>> Picture(np.zeros((28, 20), dtype=np.uint8))
    <Picture mode=L size=20x28>
    """

    __slots__ = ("array",)

    def __init__(self, array: np.ndarray):
        if array.dtype != np.uint8 or not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] == 3)):
            raise ValueError(
                f"a Picture is made of bytes, (H, W) or (H, W, 3), not of {array.dtype} {array.shape}. Pillow knows more kinds of "
                "images: pip install 'flambeau[vision]'"
            )
        self.array = array

    @property
    def mode(self) -> str:
        return "L" if self.array.ndim == 2 else "RGB"

    @property
    def size(self) -> tuple[int, int]:
        """(width, height), as Pillow has it."""
        return self.array.shape[1], self.array.shape[0]

    width = property(lambda self: self.size[0])
    height = property(lambda self: self.size[1])

    def getbands(self) -> tuple[str, ...]:
        return tuple(self.mode)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.array, dtype=dtype, copy=copy)

    def tensor(self) -> Tensor:
        """The bytes as (C, H, W)."""
        array = self.array[None] if self.array.ndim == 2 else self.array.transpose(2, 0, 1)
        return from_numpy(np.array(array, order="C"))

    @classmethod
    def of(cls, tensor: Tensor) -> Picture:
        """The picture of (C, H, W) bytes."""
        array = tensor.numpy()
        return cls(np.ascontiguousarray(array[0] if len(array) == 1 else array.transpose(1, 2, 0)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Picture) and np.array_equal(self.array, other.array)

    __hash__ = None

    def __repr__(self) -> str:
        return f"<Picture mode={self.mode} size={self.width}x{self.height}>"


def pillow(part: str = "Image", what: str = "this") -> Any:
    """The module PIL.<part>, or an ImportError that says how to get it."""
    try:
        return import_module(f"PIL.{part}")
    except ModuleNotFoundError as problem:
        if (problem.name or "").partition(".")[0] != "PIL":
            raise
        raise ImportError(f"{what} needs Pillow, which is not installed: pip install 'flambeau[vision]'") from None


@cache
def has_pillow() -> bool:
    """Whether images are Pillow's here. Remembered, as a search in vain would cost more than an image."""
    try:
        import_module("PIL.Image")
    except ModuleNotFoundError:
        return False
    return True


def is_pillow_image(value: Any) -> bool:
    module = sys.modules.get("PIL.Image")
    return module is not None and isinstance(value, module.Image)


def image_from_array(array: np.ndarray) -> Any:
    """An image of bytes, (H, W) or (H, W, 3): Pillow's, or a Picture where Pillow is missing."""
    module = sys.modules.get("PIL.Image") or (pillow() if has_pillow() else None)
    return Picture(array) if module is None else module.fromarray(array)
