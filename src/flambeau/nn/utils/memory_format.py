"""The weights of convolutions in another memory format."""

from __future__ import annotations

from typing import Any

from flambeau.nn.modules.module import Module

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]


def convert_conv2d_weight_memory_format(module: Module, memory_format: Any) -> Module:
    """Bring the weights of all 2-d convolutions in a model into `memory_format` (channels_last, ...)."""
    return _convert(module, memory_format, ("Conv2d", "ConvTranspose2d"))


def convert_conv3d_weight_memory_format(module: Module, memory_format: Any) -> Module:
    """Bring the weights of all 3-d convolutions in a model into `memory_format` (channels_last_3d, ...)."""
    return _convert(module, memory_format, ("Conv3d", "ConvTranspose3d"))


def _convert(module: Module, memory_format: Any, kinds: tuple[str, ...]) -> Module:
    for inner in module.modules():
        if any(base.__name__ in kinds for base in type(inner).__mro__):
            inner.weight.data = inner.weight.detach().clone().contiguous(memory_format=memory_format)
    return module
