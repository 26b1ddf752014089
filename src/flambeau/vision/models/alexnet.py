"""The network that began it (Krizhevsky 2014, the version of one tower)."""

from __future__ import annotations

from typing import Any

from flambeau.nn.modules.activation import ReLU
from flambeau.nn.modules.container import Sequential
from flambeau.nn.modules.conv import Conv2d
from flambeau.nn.modules.dropout import Dropout
from flambeau.nn.modules.linear import Linear
from flambeau.nn.modules.module import Module
from flambeau.nn.modules.pooling import AdaptiveAvgPool2d, MaxPool2d
from flambeau.tensor import Tensor
from flambeau.vision.models import pretrained

__all__ = ["AlexNet", "AlexNet_Weights", "alexnet"]


class AlexNet(Module):
    """Five convolutions and three fully connected layers. (N, 3, H, W) -> (N, num_classes), H and W from 63 on."""

    def __init__(self, num_classes: int = 1000, dropout: float = 0.5):
        super().__init__()
        self.features = Sequential(
            Conv2d(3, 64, 11, stride=4, padding=2), ReLU(inplace=True), MaxPool2d(3, stride=2),
            Conv2d(64, 192, 5, padding=2), ReLU(inplace=True), MaxPool2d(3, stride=2),
            Conv2d(192, 384, 3, padding=1), ReLU(inplace=True),
            Conv2d(384, 256, 3, padding=1), ReLU(inplace=True),
            Conv2d(256, 256, 3, padding=1), ReLU(inplace=True), MaxPool2d(3, stride=2),
        )  # fmt: skip
        self.avgpool = AdaptiveAvgPool2d((6, 6))
        self.classifier = Sequential(
            Dropout(dropout), Linear(256 * 6 * 6, 4096), ReLU(inplace=True),
            Dropout(dropout), Linear(4096, 4096), ReLU(inplace=True), Linear(4096, num_classes),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


def alexnet(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> AlexNet:
    """AlexNet with untrained weights."""
    pretrained.refuse("alexnet", weights, kwargs)
    return AlexNet(**kwargs)


(AlexNet_Weights,) = pretrained.weights("AlexNet_Weights")
