"""Batch normalization with fixed statistics, and the usual sequence of convolution, normalization and activation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.nn.modules.activation import ReLU
from flambeau.nn.modules.batchnorm import BatchNorm2d
from flambeau.nn.modules.container import Sequential
from flambeau.nn.modules.conv import Conv2d
from flambeau.nn.modules.module import Module
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import ones, zeros


class FrozenBatchNorm2d(Module):
    """BatchNorm2d whose statistics, scale and shift are fixed: (x - mean) / sqrt(var + eps) * weight + bias, all four buffers.

    Shape: (N, C, H, W) -> the same
    """

    def __init__(self, num_features: int, eps: float = 1e-5):
        super().__init__()
        self.eps = eps
        self.register_buffer("weight", ones(num_features))
        self.register_buffer("bias", zeros(num_features))
        self.register_buffer("running_mean", zeros(num_features))
        self.register_buffer("running_var", ones(num_features))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        state_dict.pop(f"{prefix}num_batches_tracked", None)  # a BatchNorm2d counts, this one has nothing to count
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def forward(self, x: Tensor) -> Tensor:
        scale = self.weight * (self.running_var + self.eps).rsqrt()
        shift = self.bias - self.running_mean * scale
        return x * scale.view(1, -1, 1, 1) + shift.view(1, -1, 1, 1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.weight.shape[0]}, eps={self.eps})"


class Conv2dNormActivation(Sequential):
    """A convolution that keeps height and width but for its stride, a normalization, an activation; either of the last two may be None.

    Shape: (N, in_channels, H, W) -> (N, out_channels, H / stride, W / stride)
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any = 3, stride: Any = 1, padding: Any = None, groups: int = 1,
        norm_layer: Callable[..., Module] | None = BatchNorm2d, activation_layer: Callable[..., Module] | None = ReLU, dilation: Any = 1,
        inplace: bool | None = True, bias: bool | None = None,
    ):  # fmt: skip
        if padding is None:
            sizes = zip(_pair(kernel_size), _pair(dilation), strict=True)
            padding = tuple((size - 1) // 2 * gap for size, gap in sizes)
        with_bias = norm_layer is None if bias is None else bias  # a normalization would take the bias away again
        layers: list[Module] = [Conv2d(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, with_bias)]
        if norm_layer is not None:
            layers.append(norm_layer(out_channels))
        if activation_layer is not None:
            layers.append(activation_layer(**({} if inplace is None else {"inplace": inplace})))
        super().__init__(*layers)
        self.out_channels = out_channels


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else tuple(value)
