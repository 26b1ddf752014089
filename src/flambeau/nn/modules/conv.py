"""Convolution layers: a kernel that slides over signals, images and volumes, and the transposed ones that spread it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

from flambeau.modes import no_grad
from flambeau.nn import functional as F
from flambeau.nn import init
from flambeau.nn.common_types import _size_1_t, _size_2_t, _size_3_t  # noqa: F401  (programs import these and the tuples from here)
from flambeau.nn.modules.lazy import LazyModuleMixin
from flambeau.nn.modules.module import Module
from flambeau.nn.modules.utils import _pair, _reverse_repeat_tuple, _single, _triple  # noqa: F401
from flambeau.nn.parameter import UninitializedParameter
from flambeau.ops.formats import contiguous_format
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import empty, empty_like
from flambeau.tensor.making.parameter import Parameter

__all__ = [f"{lazy}Conv{kind}{n}d" for lazy in ("", "Lazy") for kind in ("", "Transpose") for n in (1, 2, 3)]
PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _ConvNd(Module):
    """What all convolutions share: sizes as tuples, weight and bias, their starting values, the representation."""

    __constants__ = [
        "stride", "padding", "dilation", "groups", "padding_mode", "output_padding", "in_channels", "out_channels", "kernel_size",
    ]  # fmt: skip
    dims = 0
    weight: Tensor
    bias: Tensor | None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__module__ == __name__ and cls.__doc__ is None:  # the same in 1, 2 and 3 dimensions
            cls.__doc__ = cls.__bases__[0].__doc__

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
        output_padding: Any, groups: int, bias: bool, padding_mode: str, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        _check(in_channels, out_channels, stride, padding, groups, padding_mode)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.stride, self.dilation = (_tuple(v, self.dims) for v in (kernel_size, stride, dilation))
        self.padding = padding if isinstance(padding, str) else _tuple(padding, self.dims)
        self.transposed, self.output_padding = transposed, _tuple(output_padding, self.dims)
        self.groups, self.padding_mode = groups, padding_mode
        self._reversed_padding_repeated_twice = self._around()
        first, second = (in_channels, out_channels) if transposed else (out_channels, in_channels)
        self._make_parameters((first, second // groups, *self.kernel_size), bias, device, dtype)
        self.reset_parameters()

    def _make_parameters(self, shape: tuple[int, ...], bias: bool, device: Any, dtype: Any) -> None:
        self.weight = Parameter(empty(shape, device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(empty(self.out_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)

    def _around(self) -> Sequence[int]:
        """(before, after) of each dimension, the last one first: what F.pad takes."""
        if not isinstance(self.padding, str):
            return _reverse_repeat_tuple(self.padding, 2)
        if self.padding == "valid":
            return [0] * 2 * len(self.kernel_size)
        totals = [d * (k - 1) for d, k in zip(reversed(self.dilation), reversed(self.kernel_size), strict=True)]
        return [part for total in totals for part in (total // 2, total - total // 2)]

    def reset_parameters(self) -> None:
        """Draw new weights, uniform in ±1/√(in_channels / groups · kernel)."""
        if self.weight.is_contiguous():
            init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        else:  # a weight with its channels last gets the same numbers at the same places as any other
            with no_grad():
                self.weight.copy_(init.kaiming_uniform_(empty_like(self.weight, memory_format=contiguous_format), a=math.sqrt(5)))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        parts = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"]
        n = len(self.kernel_size)
        for name, usual in (("padding", (0,) * n), ("dilation", (1,) * n), ("output_padding", (0,) * n), ("groups", 1)):
            if getattr(self, name) != usual:
                parts.append(f"{name}={getattr(self, name)}")
        if self.bias is None:
            parts.append("bias=False")
        if self.padding_mode != "zeros":
            parts.append(f"padding_mode={self.padding_mode}")
        return ", ".join(parts)

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        if not hasattr(self, "padding_mode"):
            self.padding_mode = "zeros"


def _tuple(value: Any, n: int) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * n


def _check(in_channels: int, out_channels: int, stride: Any, padding: Any, groups: int, padding_mode: str) -> None:
    if groups <= 0:
        raise ValueError(f"groups must be a positive integer, found {groups}")
    if in_channels % groups != 0:
        raise ValueError(f"in_channels must be divisible by groups: {in_channels} and {groups}")
    if out_channels % groups != 0:
        raise ValueError(f"out_channels must be divisible by groups: {out_channels} and {groups}")
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise ValueError(f"Invalid padding string {padding!r}, should be one of 'same', 'valid'")
        strides = stride if isinstance(stride, (tuple, list)) else (stride,)
        if padding == "same" and any(s != 1 for s in strides):
            raise ValueError("padding='same' is not supported for strided convolutions")
    if padding_mode not in PADDING_MODES:
        raise ValueError(f"padding_mode must be one of {PADDING_MODES}, found '{padding_mode}'")


class _Conv(_ConvNd):
    """A convolution in `dims` dimensions.

    Shape:
        input   (N, in_channels, *S) or (in_channels, *S)
        output  (N, out_channels, *P), P = (S + 2 padding - dilation (kernel_size - 1) - 1) / stride + 1, rounded down
        weight  (out_channels, in_channels / groups, *kernel_size)
        bias    (out_channels,)
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
        bias: bool = True, padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, False, 0, groups, bias, padding_mode, device, dtype
        )

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        convolve = getattr(F, f"conv{self.dims}d")
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = 0
        return convolve(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class Conv1d(_Conv):
    dims = 1


class Conv2d(_Conv):
    dims = 2


class Conv3d(_Conv):
    dims = 3


class _ConvTransposeNd(_ConvNd):
    """A transposed convolution in `dims` dimensions: every number of the input spreads the kernel over the output.

    Shape:
        input   (N, in_channels, *P) or (in_channels, *P)
        output  (N, out_channels, *S), S = (P - 1) stride - 2 padding + dilation (kernel_size - 1) + output_padding + 1
        weight  (in_channels, out_channels / groups, *kernel_size)
        bias    (out_channels,)
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
        output_padding: Any, groups: int, bias: bool, padding_mode: str, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}, found {padding_mode!r}')
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, transposed, output_padding, groups, bias, padding_mode,
            device, dtype,
        )  # fmt: skip

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        more = self._output_padding(input, output_size, self.stride, self.padding, self.kernel_size, self.dims, self.dilation)
        spread = getattr(F, f"conv_transpose{self.dims}d")
        return spread(input, self.weight, self.bias, self.stride, self.padding, more, self.groups, self.dilation)

    def _output_padding(self, input, output_size, stride, padding, kernel_size, num_spatial_dims, dilation=None):
        """What has to be added at the end to arrive at `output_size`."""
        if output_size is None:
            return self.output_padding
        n, batched = num_spatial_dims, input.dim() == num_spatial_dims + 2
        if len(output_size) == n + (2 if batched else 1):
            output_size = output_size[-n:]
        if len(output_size) != n:
            raise ValueError(
                f"{type(self).__name__}: an output_size for {input.dim()}D input has {n} numbers, or {n + (2 if batched else 1)} with channels "
                f"(found {len(output_size)})"
            )
        steps = dilation or (1,) * n
        least = [
            (p - 1) * s - 2 * q + d * (k - 1) + 1
            for p, s, q, k, d in zip(input.shape[-n:], stride, padding, kernel_size, steps, strict=True)
        ]
        most = [m + s - 1 for m, s in zip(least, stride, strict=True)]
        if any(not low <= size <= high for low, size, high in zip(least, output_size, most, strict=True)):
            raise ValueError(
                f"an output size of {tuple(output_size)} is asked for: valid sizes range from {least} to {most} "
                f"when the input has {tuple(input.shape[2:])}"
            )
        return tuple(size - low for size, low in zip(output_size, least, strict=True))


class _ConvTransposeMixin(_ConvTransposeNd):
    """The name that older programs inherit from."""

    def __init__(self, *args: Any, **kwargs: Any):
        warnings.warn("`_ConvTransposeMixin` is a deprecated internal class. Inherit from nn.ConvTranspose2d", FutureWarning, stacklevel=2)
        super().__init__(*args, **kwargs)


class _Spreading(_ConvTransposeNd):
    """The options in the order that users give them."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
        groups: int = 1, bias: bool = True, dilation: Any = 1, padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, True, output_padding, groups, bias, padding_mode, device, dtype
        )  # fmt: skip


class ConvTranspose1d(_Spreading):
    dims = 1


class ConvTranspose2d(_Spreading):
    dims = 2


class ConvTranspose3d(_Spreading):
    dims = 3


class _LazyConv(LazyModuleMixin, _ConvNd):
    """A convolution that takes `in_channels` from its first input, and is an ordinary one from then on."""

    def __init__(self, out_channels: int, kernel_size: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(0, 0, kernel_size, *args, **kwargs)
        self.out_channels = out_channels
        device, dtype = self.weight.device, self.weight.dtype
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if self.bias is not None:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.in_channels != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        if not self.has_uninitialized_params():
            return
        self.in_channels = self._channels_of(input)
        if self.in_channels % self.groups != 0:
            raise ValueError(f"in_channels must be divisible by groups: {self.in_channels} and {self.groups}")
        first, second = (self.in_channels, self.out_channels) if self.transposed else (self.out_channels, self.in_channels)
        self.weight.materialize((first, second // self.groups, *self.kernel_size))
        if self.bias is not None:
            self.bias.materialize((self.out_channels,))
        self.reset_parameters()

    def _channels_of(self, input: Tensor) -> int:
        if input.dim() not in (self.dims + 1, self.dims + 2):
            raise RuntimeError(
                f"Expected {self.dims + 1}D (unbatched) or {self.dims + 2}D (batched) input, and of this for {type(self).__name__} "
                f"the size is {tuple(input.shape)}"
            )
        return input.shape[1] if input.dim() == self.dims + 2 else input.shape[0]


class LazyConv1d(_LazyConv, Conv1d):
    cls_to_become = Conv1d


class LazyConv2d(_LazyConv, Conv2d):
    cls_to_become = Conv2d


class LazyConv3d(_LazyConv, Conv3d):
    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyConv, ConvTranspose1d):
    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConv, ConvTranspose2d):
    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyConv, ConvTranspose3d):
    cls_to_become = ConvTranspose3d
