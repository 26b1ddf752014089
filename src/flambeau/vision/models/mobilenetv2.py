"""Small networks of inverted residuals (Sandler et al. 2018): wide inside, narrow where blocks meet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.nn import init
from flambeau.nn.modules.activation import ReLU6
from flambeau.nn.modules.batchnorm import BatchNorm2d
from flambeau.nn.modules.container import Sequential
from flambeau.nn.modules.conv import Conv2d
from flambeau.nn.modules.dropout import Dropout
from flambeau.nn.modules.linear import Linear
from flambeau.nn.modules.module import Module
from flambeau.nn.modules.normalization import GroupNorm
from flambeau.tensor import Tensor
from flambeau.vision.models import pretrained
from flambeau.vision.ops.misc import Conv2dNormActivation

__all__ = ["MobileNetV2", "MobileNet_V2_Weights", "mobilenet_v2"]

Norm = Callable[..., Module]
SETTING = [
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
]  # widening, channels, blocks, stride


def _make_divisible(v: float, divisor: int, min_value: int | None = None) -> int:
    """The nearest multiple of `divisor` that is not more than a tenth below v."""
    rounded = max(min_value or divisor, int(v + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * v else rounded


class InvertedResidual(Module):
    """1 x 1 to more channels, 3 x 3 on each channel alone, 1 x 1 to fewer. (N, inp, H, W) -> (N, oup, H / stride, W / stride)."""

    def __init__(self, inp: int, oup: int, stride: int, expand_ratio: int, norm_layer: Norm | None = None):
        super().__init__()
        if stride not in (1, 2):
            raise ValueError(f"stride should be 1 or 2 instead of {stride}")
        norm, wide = norm_layer or BatchNorm2d, round(inp * expand_ratio)
        options: dict[str, Any] = {"norm_layer": norm, "activation_layer": ReLU6}
        layers: list[Module] = [Conv2dNormActivation(inp, wide, kernel_size=1, **options)] if expand_ratio != 1 else []
        layers += [
            Conv2dNormActivation(wide, wide, stride=stride, groups=wide, **options),
            Conv2d(wide, oup, 1, 1, 0, bias=False),
            norm(oup),
        ]
        self.stride, self.use_res_connect = stride, stride == 1 and inp == oup
        self.conv = Sequential(*layers)
        self.out_channels, self._is_cn = oup, stride > 1

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


class MobileNetV2(Module):
    """(N, 3, H, W) -> (N, num_classes)."""

    def __init__(
        self, num_classes: int = 1000, width_mult: float = 1.0, inverted_residual_setting: list | None = None, round_nearest: int = 8,
        block: Callable[..., Module] | None = None, norm_layer: Norm | None = None, dropout: float = 0.2,
    ):  # fmt: skip
        super().__init__()
        block, norm = block or InvertedResidual, norm_layer or BatchNorm2d
        setting = SETTING if inverted_residual_setting is None else inverted_residual_setting
        if not setting or len(setting[0]) != 4:
            raise ValueError(f"inverted_residual_setting should be non-empty or a 4-element list, got {setting}")
        channels = _make_divisible(32 * width_mult, round_nearest)
        self.last_channel = _make_divisible(1280 * max(1.0, width_mult), round_nearest)
        options: dict[str, Any] = {"norm_layer": norm, "activation_layer": ReLU6}
        features: list[Module] = [Conv2dNormActivation(3, channels, stride=2, **options)]
        for widening, width, blocks, stride in setting:
            width = _make_divisible(width * width_mult, round_nearest)
            for i in range(blocks):
                features.append(block(channels, width, stride if i == 0 else 1, expand_ratio=widening, norm_layer=norm))
                channels = width
        features.append(Conv2dNormActivation(channels, self.last_channel, kernel_size=1, **options))
        self.features = Sequential(*features)
        self.classifier = Sequential(Dropout(dropout), Linear(self.last_channel, num_classes))
        self._initialize()

    def _initialize(self) -> None:
        for module in self.modules():
            if isinstance(module, Conv2d):
                init.kaiming_normal_(module.weight, mode="fan_out")
            elif isinstance(module, BatchNorm2d | GroupNorm):
                init.ones_(module.weight)
            elif isinstance(module, Linear):
                init.normal_(module.weight, 0, 0.01)
            if isinstance(module, Conv2d | BatchNorm2d | GroupNorm | Linear) and module.bias is not None:
                init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean((2, 3)))


def mobilenet_v2(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> MobileNetV2:
    """MobileNet v2 with untrained weights."""
    pretrained.refuse("mobilenet_v2", weights, kwargs)
    return MobileNetV2(**kwargs)


(MobileNet_V2_Weights,) = pretrained.weights("MobileNet_V2_Weights")
