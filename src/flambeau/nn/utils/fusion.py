"""Folding a batch norm in evaluation mode into the layer before it: two affine maps in a row are one."""

from __future__ import annotations

import copy
from typing import Any

from flambeau.tensor import Tensor
from flambeau.tensor.making import factories
from flambeau.tensor.making.parameter import Parameter

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A copy of a convolution that does what it and the batch norm after it do in evaluation mode."""
    fused = _evaluated(conv, bn)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, transpose
    )
    return fused


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """(weight, bias) of the convolution followed by (y - mean) / √(var + eps) * bn_w + bn_b."""
    bn_w = factories.ones_like(bn_rm) if bn_w is None else bn_w
    scale = bn_w * (bn_rv + bn_eps).rsqrt()
    # Output channels are dimension 0 of a convolution's weight, 1 of a transposed one's.
    shape = [1, -1] + [1] * (conv_w.dim() - 2) if transpose else [-1] + [1] * (conv_w.dim() - 1)
    return _parameters(conv_w, conv_b, bn_rm, bn_b, scale, scale.reshape(shape))


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A copy of a Linear that does what it and the batch norm after it do in evaluation mode."""
    if linear.out_features != bn.num_features and bn.num_features != 1:
        sizes = f"linear.out_features ({linear.out_features}), bn.num_features ({bn.num_features})"
        raise AssertionError(f"To fuse, linear.out_features == bn.num_features or bn.num_features == 1: found {sizes}")
    fused = _evaluated(linear, bn)
    fused.weight, fused.bias = fuse_linear_bn_weights(fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
    return fused


def fuse_linear_bn_weights(
    linear_w: Tensor, linear_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float, bn_w: Tensor, bn_b: Tensor
) -> tuple[Parameter, Parameter]:
    """(weight, bias) of the Linear followed by (y - mean) / √(var + eps) * bn_w + bn_b."""
    scale = bn_w * (bn_rv + bn_eps).rsqrt()
    return _parameters(linear_w, linear_b, bn_rm, bn_b, scale, scale.unsqueeze(-1))


def _parameters(w: Tensor, b: Tensor | None, mean: Tensor, shift: Tensor | None, scale: Tensor, scale_of_weight: Tensor) -> tuple:
    b = factories.zeros_like(mean) if b is None else b
    shift = factories.zeros_like(mean) if shift is None else shift
    weight = (w * scale_of_weight).to(w.dtype)
    bias = ((b - mean) * scale + shift).to(b.dtype)
    return Parameter(weight.detach(), w.requires_grad), Parameter(bias.detach(), b.requires_grad)


def _evaluated(layer: Any, bn: Any) -> Any:
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!: call .eval() on both modules first")
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("Fusion needs running statistics: the batch norm was made with track_running_stats=False")
    return copy.deepcopy(layer)
