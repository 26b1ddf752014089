"""Densely connected networks (Huang et al. 2017): every layer reads what all layers before it in its block have made."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from flambeau.nn import functional as F
from flambeau.nn import init
from flambeau.nn.modules.activation import ReLU
from flambeau.nn.modules.batchnorm import BatchNorm2d
from flambeau.nn.modules.container import ModuleDict, Sequential
from flambeau.nn.modules.conv import Conv2d
from flambeau.nn.modules.linear import Linear
from flambeau.nn.modules.module import Module
from flambeau.nn.modules.pooling import AvgPool2d, MaxPool2d
from flambeau.ops.joining import cat
from flambeau.tensor import Tensor
from flambeau.utils.checkpoint import checkpoint
from flambeau.vision.models import pretrained

__all__ = [
    "DenseNet", "DenseNet121_Weights", "DenseNet161_Weights", "DenseNet169_Weights", "DenseNet201_Weights", "densenet121", "densenet161",
    "densenet169", "densenet201",
]  # fmt: skip


class _DenseLayer(Module):
    """1 x 1 to bn_size * growth_rate channels, 3 x 3 to growth_rate. list of (N, C_i, H, W) -> (N, growth_rate, H, W)."""

    def __init__(self, num_input_features: int, growth_rate: int, bn_size: int, drop_rate: float, memory_efficient: bool = False):
        super().__init__()
        self.norm1 = BatchNorm2d(num_input_features)
        self.relu1 = ReLU(inplace=True)
        self.conv1 = Conv2d(num_input_features, bn_size * growth_rate, 1, bias=False)
        self.norm2 = BatchNorm2d(bn_size * growth_rate)
        self.relu2 = ReLU(inplace=True)
        self.conv2 = Conv2d(bn_size * growth_rate, growth_rate, 3, padding=1, bias=False)
        self.drop_rate, self.memory_efficient = float(drop_rate), memory_efficient

    def bn_function(self, inputs: list[Tensor]) -> Tensor:
        """The part that takes much memory: everything so far, normalized."""
        return self.conv1(self.relu1(self.norm1(cat(inputs, 1))))

    def forward(self, input: Tensor | list[Tensor]) -> Tensor:
        inputs = [input] if isinstance(input, Tensor) else input
        if self.memory_efficient and any(t.requires_grad for t in inputs):
            narrow = checkpoint(lambda *parts: self.bn_function(list(parts)), *inputs, use_reentrant=False)
        else:
            narrow = self.bn_function(inputs)
        new = self.conv2(self.relu2(self.norm2(narrow)))
        return F.dropout(new, self.drop_rate, self.training) if self.drop_rate > 0 else new


class _DenseBlock(ModuleDict):
    """(N, C, H, W) -> (N, C + num_layers * growth_rate, H, W)."""

    def __init__(
        self, num_layers: int, num_input_features: int, bn_size: int, growth_rate: int, drop_rate: float, memory_efficient: bool = False
    ):
        super().__init__()
        for i in range(num_layers):
            layer = _DenseLayer(num_input_features + i * growth_rate, growth_rate, bn_size, drop_rate, memory_efficient)
            self.add_module(f"denselayer{i + 1}", layer)

    def forward(self, init_features: Tensor) -> Tensor:
        features = [init_features]
        for layer in self.values():
            features.append(layer(features))
        return cat(features, 1)


class _Transition(Sequential):
    """Between blocks: half the channels, half the resolution."""

    def __init__(self, num_input_features: int, num_output_features: int):
        super().__init__()
        self.norm = BatchNorm2d(num_input_features)
        self.relu = ReLU(inplace=True)
        self.conv = Conv2d(num_input_features, num_output_features, 1, bias=False)
        self.pool = AvgPool2d(2, 2)


class DenseNet(Module):
    """(N, 3, H, W) -> (N, num_classes)."""

    def __init__(
        self, growth_rate: int = 32, block_config: tuple[int, ...] = (6, 12, 24, 16), num_init_features: int = 64, bn_size: int = 4,
        drop_rate: float = 0, num_classes: int = 1000, memory_efficient: bool = False,
    ):  # fmt: skip
        super().__init__()
        first = [
            ("conv0", Conv2d(3, num_init_features, 7, stride=2, padding=3, bias=False)), ("norm0", BatchNorm2d(num_init_features)),
            ("relu0", ReLU(inplace=True)), ("pool0", MaxPool2d(3, stride=2, padding=1)),
        ]  # fmt: skip
        self.features = Sequential(OrderedDict(first))
        channels = num_init_features
        for i, layers in enumerate(block_config, 1):
            self.features.add_module(f"denseblock{i}", _DenseBlock(layers, channels, bn_size, growth_rate, drop_rate, memory_efficient))
            channels += layers * growth_rate
            if i != len(block_config):
                self.features.add_module(f"transition{i}", _Transition(channels, channels // 2))
                channels //= 2
        self.features.add_module("norm5", BatchNorm2d(channels))
        self.classifier = Linear(channels, num_classes)
        for module in self.modules():
            if isinstance(module, Conv2d):
                init.kaiming_normal_(module.weight)
            elif isinstance(module, BatchNorm2d):
                init.ones_(module.weight)
                init.zeros_(module.bias)
            elif isinstance(module, Linear):
                init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        features = F.relu(self.features(x), inplace=True)
        return self.classifier(F.adaptive_avg_pool2d(features, (1, 1)).flatten(1))


def _builder(depth: int, growth_rate: int, blocks: tuple[int, ...], first: int) -> Callable[..., DenseNet]:
    name = f"densenet{depth}"

    def build(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> DenseNet:
        pretrained.refuse(name, weights, kwargs)
        return DenseNet(growth_rate, blocks, first, **kwargs)

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"DenseNet with {depth} layers, untrained."
    return build


densenet121 = _builder(121, 32, (6, 12, 24, 16), 64)
densenet161 = _builder(161, 48, (6, 12, 36, 24), 96)
densenet169 = _builder(169, 32, (6, 12, 32, 32), 64)
densenet201 = _builder(201, 32, (6, 12, 48, 32), 64)
DenseNet121_Weights, DenseNet161_Weights, DenseNet169_Weights, DenseNet201_Weights = pretrained.weights(
    "DenseNet121_Weights", "DenseNet161_Weights", "DenseNet169_Weights", "DenseNet201_Weights"
)
