"""Batch normalization with fixed statistics."""

from __future__ import annotations

from typing import Any

from flambeau.factories import ones, zeros
from flambeau.nn.modules.module import Module
from flambeau.tensor import Tensor


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
