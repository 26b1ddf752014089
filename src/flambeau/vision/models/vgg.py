"""Networks of 3 x 3 convolutions (Simonyan and Zisserman 2014): channels double where height and width halve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.nn import init
from flambeau.nn.modules.activation import ReLU
from flambeau.nn.modules.batchnorm import BatchNorm2d
from flambeau.nn.modules.container import Sequential
from flambeau.nn.modules.conv import Conv2d
from flambeau.nn.modules.dropout import Dropout
from flambeau.nn.modules.linear import Linear
from flambeau.nn.modules.module import Module
from flambeau.nn.modules.pooling import AdaptiveAvgPool2d, MaxPool2d
from flambeau.tensor import Tensor
from flambeau.vision.models import pretrained

STAGES = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}  # convolutions of each stage, by depth
WIDTHS = (64, 128, 256, 512, 512)


class VGG(Module):
    """Convolutions, then three fully connected layers on a 7 x 7 grid. (N, 3, H, W) -> (N, num_classes)."""

    def __init__(self, features: Module, num_classes: int = 1000, init_weights: bool = True, dropout: float = 0.5):
        super().__init__()
        self.features = features
        self.avgpool = AdaptiveAvgPool2d((7, 7))
        self.classifier = Sequential(
            Linear(512 * 7 * 7, 4096),
            ReLU(True),
            Dropout(dropout),
            Linear(4096, 4096),
            ReLU(True),
            Dropout(dropout),
            Linear(4096, num_classes),
        )
        if init_weights:
            self._initialize()

    def _initialize(self) -> None:
        for module in self.modules():
            if isinstance(module, Conv2d):
                init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, BatchNorm2d):
                init.ones_(module.weight)
            elif isinstance(module, Linear):
                init.normal_(module.weight, 0, 0.01)
            if isinstance(module, Conv2d | BatchNorm2d | Linear) and module.bias is not None:
                init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


def make_layers(cfg: list[int | str], batch_norm: bool = False) -> Sequential:
    """The convolutions: a number is one with so many channels, "M" a pooling."""
    made: list[Module] = []
    channels = 3
    for width in cfg:
        if isinstance(width, str):
            made.append(MaxPool2d(2, 2))
        else:
            made += [Conv2d(channels, width, 3, padding=1), *([BatchNorm2d(width)] if batch_norm else []), ReLU(inplace=True)]
            channels = width
    return Sequential(*made)


def _stages(depth: int) -> list[int | str]:
    stages = [[width] * count + ["M"] for count, width in zip(STAGES[depth], WIDTHS, strict=True)]
    return [layer for stage in stages for layer in stage]


def _builder(depth: int, batch_norm: bool) -> Callable[..., VGG]:
    name = f"vgg{depth}{'_bn' if batch_norm else ''}"

    def build(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> VGG:
        pretrained.refuse(name, weights, kwargs)
        return VGG(make_layers(_stages(depth), batch_norm), **kwargs)

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"VGG with {depth} layers{' and batch normalization' if batch_norm else ''}, untrained."
    return build


vgg11, vgg13, vgg16, vgg19 = (_builder(depth, False) for depth in STAGES)
vgg11_bn, vgg13_bn, vgg16_bn, vgg19_bn = (_builder(depth, True) for depth in STAGES)
VGG11_Weights, VGG13_Weights, VGG16_Weights, VGG19_Weights = pretrained.weights(*(f"VGG{depth}_Weights" for depth in STAGES))
VGG11_BN_Weights, VGG13_BN_Weights, VGG16_BN_Weights, VGG19_BN_Weights = pretrained.weights(*(f"VGG{d}_BN_Weights" for d in STAGES))

__all__ = [
    "VGG", "VGG11_BN_Weights", "VGG11_Weights", "VGG13_BN_Weights", "VGG13_Weights", "VGG16_BN_Weights", "VGG16_Weights", "VGG19_BN_Weights",
    "VGG19_Weights", "vgg11", "vgg11_bn", "vgg13", "vgg13_bn", "vgg16", "vgg16_bn", "vgg19", "vgg19_bn",
]  # fmt: skip
