"""Normalisation within a sample: LayerNorm, RMSNorm, GroupNorm, and the older norms over neighbouring channels."""

from __future__ import annotations

from typing import Any

from flambeau.nn import functional as F
from flambeau.nn import init
from flambeau.nn.modules.module import Module
from flambeau.tensor import Size, Tensor
from flambeau.tensor.making.factories import empty
from flambeau.tensor.making.parameter import Parameter

__all__ = ["CrossMapLRN2d", "GroupNorm", "LayerNorm", "LocalResponseNorm", "RMSNorm"]


_shape_t = int | list[int] | Size  # what normalized_shape may be


def _learned(module: Module, shape: tuple[int, ...], device: Any, dtype: Any, **wanted: bool) -> None:
    """Register the parameters that are wanted, and the places of those that are not."""
    for name, there in wanted.items():
        module.register_parameter(name, Parameter(empty(shape, device=device, dtype=dtype)) if there else None)


class LayerNorm(Module):
    """Centre and scale every sample over its trailing dimensions, then apply a learned scale and shift.

    Shape:
        input   (*, D)      D stands for normalized_shape, * for any leading dimensions, or none
        output  (*, D)
        weight  D           starts at one; bias, of the same shape, at zero

    >>> LayerNorm(8)
    LayerNorm((8,), eps=1e-05, elementwise_affine=True, bias=True)
    """

    __constants__ = ["normalized_shape", "eps", "elementwise_affine"]
    normalized_shape: tuple[int, ...]

    def __init__(
        self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        _learned(self, self.normalized_shape, device, dtype, weight=elementwise_affine, bias=elementwise_affine and bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Scale 1, shift 0."""
        _start(self)

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"


def _start(layer: LayerNorm | GroupNorm) -> None:
    for parameter, begin in ((layer.weight, init.ones_), (layer.bias, init.zeros_)):
        if parameter is not None:
            begin(parameter)


class RMSNorm(Module):
    """Scale every sample to root mean square 1 over its trailing dimensions, then apply a learned scale (Zhang and Sennrich 2019).

    Shape: input (*, D) -> the same, with D = normalized_shape; weight D, starts at one; eps, if not given, is the dtype's
    """

    __constants__ = ["normalized_shape", "eps", "elementwise_affine"]
    normalized_shape: tuple[int, ...]

    def __init__(
        self, normalized_shape: Any, eps: float | None = None, elementwise_affine: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        _learned(self, self.normalized_shape, device, dtype, weight=elementwise_affine)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Scale 1."""
        if self.elementwise_affine:
            init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(Module):
    """Every group of channels of every sample to mean 0 and variance 1, then a learned scale and shift by channel (Wu and He 2018).

    Shape: input (N, C, *) -> the same; weight and bias (C,), start at one and zero
    """

    __constants__ = ["num_groups", "num_channels", "eps", "affine"]

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, device: Any = None, dtype: Any = None, *,
        bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        if num_channels % num_groups != 0:
            raise ValueError(f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        _learned(self, (num_channels,), device, dtype, weight=affine, bias=affine and bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Scale 1, shift 0."""
        _start(self)

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, bias={self.bias is not None}"


class LocalResponseNorm(Module):
    """x / (k + alpha * mean of the squares of `size` neighbouring channels)^beta (Krizhevsky et al. 2012). (N, C, *) -> the same."""

    __constants__ = ["size", "alpha", "beta", "k"]

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self: Any) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(Module):
    """Local response norm of images as Torch 7 had it, kept for its checkpoints. (N, C, H, W) -> the same.

    The first channel stays in the sum once it is in; what its gradient is follows from that.
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() != 4:
            raise ValueError(f"CrossMapLRN2d: Expected input to be 4D, (batch, channels, height, width); found {input.dim()}D")
        channels, reach = input.shape[1], (self.size - 1) // 2 + 1
        near = [[float(j < c + reach and (j > c - reach or j == 0)) for j in range(channels)] for c in range(channels)]
        squares = (input * input).flatten(2)
        totals = input.new_tensor(near).matmul(squares).view_as(input)
        return input * (totals * (self.alpha / self.size) + self.k) ** -self.beta

    extra_repr = LocalResponseNorm.extra_repr
