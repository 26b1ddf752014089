"""Padding: sequences, images and volumes with a border around them. The border is a constant, a mirror image, the edge, or the other side.

Every layer takes one width for all sides or (left, right, top, bottom, front, back), as many as it has dimensions; a negative width cuts off.
Shape: (N, C, *) or (C, *) -> the same, with longer *.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flambeau.nn import functional as F
from flambeau.nn.modules.module import Module
from flambeau.tensor import Tensor

__all__ = [
    "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d", "ReflectionPad1d",
    "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
]  # fmt: skip


class _Pad(Module):
    __constants__ = ["padding"]
    dims = 1
    mode = "constant"
    padding: Sequence[int]

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__()
        self.padding = tuple(padding) if isinstance(padding, Iterable) else (padding,) * (2 * self.dims)

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPadNd(_Pad):
    __constants__ = ["padding", "value"]
    value: float

    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPadNd):
    """A border of one value around a sequence."""


class ConstantPad2d(_ConstantPadNd):
    """A border of one value around an image."""

    dims = 2


class ConstantPad3d(_ConstantPadNd):
    """A border of one value around a volume."""

    dims = 3


class _Zeros(_ConstantPadNd):
    """A border of zeros, of which nothing has to be said."""

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__(padding, 0.0)

    extra_repr = _Pad.extra_repr


class ZeroPad1d(_Zeros, ConstantPad1d):
    """A border of zeros around a sequence."""


class ZeroPad2d(_Zeros, ConstantPad2d):
    """A border of zeros around an image."""


class ZeroPad3d(_Zeros, ConstantPad3d):
    """A border of zeros around a volume."""


class _ReflectionPadNd(_Pad):
    mode = "reflect"


class ReflectionPad1d(_ReflectionPadNd):
    """A sequence continued by its mirror image; the edge itself is not repeated."""


class ReflectionPad2d(_ReflectionPadNd):
    """The same with images."""

    dims = 2


class ReflectionPad3d(_ReflectionPadNd):
    """The same with volumes."""

    dims = 3


class _ReplicationPadNd(_Pad):
    mode = "replicate"


class ReplicationPad1d(_ReplicationPadNd):
    """A sequence continued by its first and last element."""


class ReplicationPad2d(_ReplicationPadNd):
    """The same with images."""

    dims = 2


class ReplicationPad3d(_ReplicationPadNd):
    """The same with volumes."""

    dims = 3


class _CircularPadNd(_Pad):
    mode = "circular"

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() not in (self.dims + 1, self.dims + 2):
            raise ValueError(f"expected {self.dims + 1}D or {self.dims + 2}D input (got {input.dim()}D input)")

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        return super().forward(input)


class CircularPad1d(_CircularPadNd):
    """A sequence continued as if it were a ring."""


class CircularPad2d(_CircularPadNd):
    """The same with images."""

    dims = 2


class CircularPad3d(_CircularPadNd):
    """The same with volumes."""

    dims = 3
