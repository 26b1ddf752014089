"""Small networks of fire modules (Iandola et al. 2016): squeeze the channels, then expand them two ways."""

from __future__ import annotations

from typing import Any

from flambeau.nn import init
from flambeau.nn.modules.activation import ReLU
from flambeau.nn.modules.container import Sequential
from flambeau.nn.modules.conv import Conv2d
from flambeau.nn.modules.dropout import Dropout
from flambeau.nn.modules.module import Module
from flambeau.nn.modules.pooling import AdaptiveAvgPool2d, MaxPool2d
from flambeau.ops.joining import cat
from flambeau.tensor import Tensor
from flambeau.vision.models import pretrained

__all__ = ["SqueezeNet", "SqueezeNet1_0_Weights", "SqueezeNet1_1_Weights", "squeezenet1_0", "squeezenet1_1"]


class Fire(Module):
    """(N, C, H, W) -> (N, expand1x1_planes + expand3x3_planes, H, W)."""

    def __init__(self, inplanes: int, squeeze_planes: int, expand1x1_planes: int, expand3x3_planes: int):
        super().__init__()
        self.inplanes = inplanes
        self.squeeze = Conv2d(inplanes, squeeze_planes, 1)
        self.squeeze_activation = ReLU(inplace=True)
        self.expand1x1 = Conv2d(squeeze_planes, expand1x1_planes, 1)
        self.expand1x1_activation = ReLU(inplace=True)
        self.expand3x3 = Conv2d(squeeze_planes, expand3x3_planes, 3, padding=1)
        self.expand3x3_activation = ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.squeeze_activation(self.squeeze(x))
        return cat([self.expand1x1_activation(self.expand1x1(x)), self.expand3x3_activation(self.expand3x3(x))], 1)


# what follows the first convolution: (channels in, squeezed, expanded each way), or None for a pooling
FIRES = {
    "1_0": [None, (96, 16, 64), (128, 16, 64), (128, 32, 128), None, (256, 32, 128), (256, 48, 192), (384, 48, 192), (384, 64, 256), None,
            (512, 64, 256)],
    "1_1": [None, (64, 16, 64), (128, 16, 64), None, (128, 32, 128), (256, 32, 128), None, (256, 48, 192), (384, 48, 192), (384, 64, 256),
            (512, 64, 256)],
}  # fmt: skip


class SqueezeNet(Module):
    """A convolution, eight fire modules, and a convolution for each class. (N, 3, H, W) -> (N, num_classes)."""

    def __init__(self, version: str = "1_0", num_classes: int = 1000, dropout: float = 0.5):
        super().__init__()
        if version not in FIRES:
            raise ValueError(f"Unsupported SqueezeNet version {version}: 1_0 or 1_1 expected")
        self.num_classes = num_classes
        first = Conv2d(3, 96, 7, stride=2) if version == "1_0" else Conv2d(3, 64, 3, stride=2)
        rest = [MaxPool2d(3, stride=2, ceil_mode=True) if f is None else Fire(f[0], f[1], f[2], f[2]) for f in FIRES[version]]
        self.features = Sequential(first, ReLU(inplace=True), *rest)
        last = Conv2d(512, num_classes, 1)
        self.classifier = Sequential(Dropout(dropout), last, ReLU(inplace=True), AdaptiveAvgPool2d((1, 1)))
        for module in self.modules():
            if isinstance(module, Conv2d):
                if module is last:
                    init.normal_(module.weight, 0.0, 0.01)
                else:
                    init.kaiming_uniform_(module.weight)
                init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x)).flatten(1)


def squeezenet1_0(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> SqueezeNet:
    """SqueezeNet as published, untrained."""
    pretrained.refuse("squeezenet1_0", weights, kwargs)
    return SqueezeNet("1_0", **kwargs)


def squeezenet1_1(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> SqueezeNet:
    """SqueezeNet with 2.4 times less to compute, untrained."""
    pretrained.refuse("squeezenet1_1", weights, kwargs)
    return SqueezeNet("1_1", **kwargs)


SqueezeNet1_0_Weights, SqueezeNet1_1_Weights = pretrained.weights("SqueezeNet1_0_Weights", "SqueezeNet1_1_Weights")
