"""Pooling layers: each window of the input becomes one number. The functions of the same names do the work."""

from __future__ import annotations

from typing import Any

from flambeau.nn import functional as F
from flambeau.nn.modules.module import Module
from flambeau.tensor import Tensor

__all__ = [
    f"{kind}{n}d"
    for kind in ("AdaptiveAvgPool", "AdaptiveMaxPool", "AvgPool", "FractionalMaxPool", "LPPool", "MaxPool", "MaxUnpool")
    for n in ((2, 3) if kind == "FractionalMaxPool" else (1, 2, 3))
]  # fmt: skip


class _PoolNd(Module):
    """What pooling layers share: they name a function and the numbers they show."""

    dims = 0
    shown: tuple[str, ...] = ("kernel_size", "stride", "padding")

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__module__ == __name__ and cls.__doc__ is None:  # the same in 1, 2 and 3 dimensions
            cls.__doc__ = cls.__bases__[0].__doc__

    def _function(self, name: str) -> Any:
        return getattr(F, f"{name}{self.dims}d")

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)}" for name in self.shown)


def _tuple(value: Any, n: int) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * n


class _MaxPoolNd(_PoolNd):
    """The greatest number of every window; with `return_indices` also its place, which MaxUnpool takes.

    Shape: (N, C, *S) or (C, *S) -> (N, C, *P), P = (S + 2 padding - dilation (kernel_size - 1) - 1) / stride + 1
    """

    __constants__ = ["kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode"]
    shown = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, return_indices: bool = False, ceil_mode: bool = False
    ) -> None:  # fmt: skip
        super().__init__()
        self.kernel_size, self.padding, self.dilation = kernel_size, padding, dilation
        self.stride = stride if stride is not None else kernel_size
        self.return_indices, self.ceil_mode = return_indices, ceil_mode

    def forward(self, input: Tensor) -> Any:
        pool = self._function("max_pool")
        return pool(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices)


class MaxPool1d(_MaxPoolNd):
    dims = 1


class MaxPool2d(_MaxPoolNd):
    dims = 2


class MaxPool3d(_MaxPoolNd):
    dims = 3


class _MaxUnpoolNd(_PoolNd):
    """Zeros, with every number where MaxPool found it.

    Shape: (N, C, *P), indices (N, C, *P) -> (N, C, *S), S = (P - 1) stride - 2 padding + kernel_size, or `output_size`
    """

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        self.kernel_size = _tuple(kernel_size, self.dims)
        self.stride = _tuple(stride if stride is not None else kernel_size, self.dims)
        self.padding = _tuple(padding, self.dims)

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return self._function("max_unpool")(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool1d(_MaxUnpoolNd):
    dims = 1


class MaxUnpool2d(_MaxUnpoolNd):
    dims = 2


class MaxUnpool3d(_MaxUnpoolNd):
    dims = 3


class _AvgPoolNd(_PoolNd):
    """The average of every window; zeros of the padding count if `count_include_pad`, or the sum is divided by `divisor_override`.

    Shape: (N, C, *S) or (C, *S) -> (N, C, *P), P = (S + 2 padding - kernel_size) / stride + 1
    """

    __constants__ = ["kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override"]

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.kernel_size, self.padding = kernel_size, padding
        self.stride = stride if stride is not None else kernel_size
        self.ceil_mode, self.count_include_pad, self.divisor_override = ceil_mode, count_include_pad, divisor_override

    def forward(self, input: Tensor) -> Tensor:
        rest = self.ceil_mode, self.count_include_pad, self.divisor_override
        return self._function("avg_pool")(input, self.kernel_size, self.stride, self.padding, *rest)


class AvgPool1d(_PoolNd):
    """The average of every window of a signal: (N, C, L) or (C, L) -> (N, C, L'), L' = (L + 2 padding - kernel_size) / stride + 1."""

    __constants__ = ["kernel_size", "stride", "padding", "ceil_mode", "count_include_pad"]
    dims = 1

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True
    ) -> None:
        super().__init__()
        self.kernel_size, self.padding = _tuple(kernel_size, 1), _tuple(padding, 1)
        self.stride = _tuple(stride if stride is not None else kernel_size, 1)
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class AvgPool2d(_AvgPoolNd):
    dims = 2


class AvgPool3d(_AvgPoolNd):
    dims = 3


class _FractionalMaxPoolNd(_PoolNd):
    """The greatest numbers of windows at random distances, as many as `output_size`, or as `output_ratio` of the input's size.

    Shape: (N, C, *S) or (C, *S) -> (N, C, *output_size)
    """

    __constants__ = ["kernel_size", "return_indices", "output_size", "output_ratio"]
    shown = ()

    def __init__(
        self, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False, _random_samples: Any = None
    ) -> None:
        super().__init__()
        self.kernel_size, self.return_indices = _tuple(kernel_size, self.dims), return_indices
        if self.dims == 3 and min(self.kernel_size) < 1:
            raise ValueError(f"kernel_size must greater than 0, in every dimension: found {kernel_size}")
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = _tuple(output_size, self.dims) if output_size is not None else None
        self.output_ratio = _tuple(output_ratio, self.dims) if output_ratio is not None else None
        name = type(self).__name__
        if output_size is None and output_ratio is None:
            raise ValueError(f"{name} requires specifying either output_size or output_ratio")
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio decides how large the result is: leave the other out")
        if self.output_ratio is not None and not all(0 < r < 1 for r in self.output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1, found {output_ratio}")

    def forward(self, input: Tensor) -> Any:
        pool = self._function("fractional_max_pool")
        return pool(input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples)


class FractionalMaxPool2d(_FractionalMaxPoolNd):
    dims = 2


class FractionalMaxPool3d(_FractionalMaxPoolNd):
    dims = 3


class _LPPoolNd(_PoolNd):
    """(sum of x^norm_type over every window)^(1 / norm_type).

    Shape: (N, C, *S) or (C, *S) -> (N, C, *P), P = (S - kernel_size) / stride + 1
    """

    __constants__ = ["norm_type", "kernel_size", "stride", "ceil_mode"]
    shown = ("norm_type", "kernel_size", "stride", "ceil_mode")

    def __init__(self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> None:
        super().__init__()
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        return self._function("lp_pool")(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool1d(_LPPoolNd):
    dims = 1


class LPPool2d(_LPPoolNd):
    dims = 2


class LPPool3d(_LPPoolNd):
    dims = 3


class _AdaptiveMaxPoolNd(_PoolNd):
    """The greatest numbers of `output_size` windows, as equal as the input's size allows.

    Shape: (N, C, *S) or (C, *S) -> (N, C, *output_size)
    """

    __constants__ = ["output_size", "return_indices"]
    shown = ("output_size",)

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size, self.return_indices = output_size, return_indices

    def forward(self, input: Tensor) -> Any:
        return self._function("adaptive_max_pool")(input, self.output_size, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    dims = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    dims = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    dims = 3


class _AdaptiveAvgPoolNd(_PoolNd):
    """The averages of `output_size` windows, as equal as the input's size allows.

    Shape: (N, C, *S) or (C, *S) -> (N, C, *output_size)
    """

    __constants__ = ["output_size"]
    shown = ("output_size",)

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        return self._function("adaptive_avg_pool")(input, self.output_size)


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    dims = 1


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    dims = 2


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    dims = 3
