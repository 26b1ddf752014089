"""Residual networks (He et al. 2015), with wider and grouped ones: each block learns what to add to what comes in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.nn import init
from flambeau.nn.modules.activation import ReLU
from flambeau.nn.modules.batchnorm import BatchNorm2d
from flambeau.nn.modules.container import Sequential
from flambeau.nn.modules.conv import Conv2d
from flambeau.nn.modules.linear import Linear
from flambeau.nn.modules.module import Module
from flambeau.nn.modules.normalization import GroupNorm
from flambeau.nn.modules.pooling import AdaptiveAvgPool2d, MaxPool2d
from flambeau.tensor import Tensor
from flambeau.vision.models import pretrained

Norm = Callable[..., Module]


def conv3x3(in_planes: int, out_planes: int, stride: int = 1, groups: int = 1, dilation: int = 1) -> Conv2d:
    """A 3 x 3 convolution that keeps height and width, but for its stride."""
    return Conv2d(in_planes, out_planes, 3, stride, padding=dilation, dilation=dilation, groups=groups, bias=False)


def conv1x1(in_planes: int, out_planes: int, stride: int = 1) -> Conv2d:
    """A product with a matrix at every place."""
    return Conv2d(in_planes, out_planes, 1, stride, bias=False)


class BasicBlock(Module):
    """Two 3 x 3 convolutions around which the input passes. (N, C, H, W) -> (N, planes, H / stride, W / stride)."""

    expansion = 1

    def __init__(
        self, inplanes: int, planes: int, stride: int = 1, downsample: Module | None = None, groups: int = 1, base_width: int = 64,
        dilation: int = 1, norm_layer: Norm | None = None,
    ):  # fmt: skip
        super().__init__()
        if groups != 1 or base_width != 64:
            raise ValueError("BasicBlock only supports groups=1 and base_width=64")
        if dilation > 1:
            raise NotImplementedError("Dilation > 1 not supported in BasicBlock")
        norm = norm_layer or BatchNorm2d
        self.conv1 = conv3x3(inplanes, planes, stride)
        self.bn1 = norm(planes)
        self.relu = ReLU(inplace=True)
        self.conv2 = conv3x3(planes, planes)
        self.bn2 = norm(planes)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        past = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(x)) + past)


class Bottleneck(Module):
    """A 3 x 3 convolution between two 1 x 1, on fewer channels. (N, C, H, W) -> (N, 4 planes, H / stride, W / stride)."""

    expansion = 4

    def __init__(
        self, inplanes: int, planes: int, stride: int = 1, downsample: Module | None = None, groups: int = 1, base_width: int = 64,
        dilation: int = 1, norm_layer: Norm | None = None,
    ):  # fmt: skip
        super().__init__()
        norm = norm_layer or BatchNorm2d
        width = int(planes * (base_width / 64.0)) * groups
        self.conv1 = conv1x1(inplanes, width)
        self.bn1 = norm(width)
        self.conv2 = conv3x3(width, width, stride, groups, dilation)  # the stride is here, not in conv1: "ResNet v1.5"
        self.bn2 = norm(width)
        self.conv3 = conv1x1(width, planes * self.expansion)
        self.bn3 = norm(planes * self.expansion)
        self.relu = ReLU(inplace=True)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        past = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        return self.relu(self.bn3(self.conv3(x)) + past)


class ResNet(Module):
    """Four stages of blocks, each at half the resolution of the one before, then the mean over places. (N, 3, H, W) -> (N, num_classes)."""

    def __init__(
        self, block: type[BasicBlock | Bottleneck], layers: list[int], num_classes: int = 1000, zero_init_residual: bool = False,
        groups: int = 1, width_per_group: int = 64, replace_stride_with_dilation: list[bool] | None = None, norm_layer: Norm | None = None,
    ):  # fmt: skip
        super().__init__()
        dilate = replace_stride_with_dilation or [False, False, False]
        if len(dilate) != 3:
            raise ValueError(f"replace_stride_with_dilation should be None or a 3-element tuple, got {replace_stride_with_dilation}")
        self._norm_layer = norm_layer or BatchNorm2d
        self.inplanes, self.dilation, self.groups, self.base_width = 64, 1, groups, width_per_group
        self.conv1 = Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = self._norm_layer(64)
        self.relu = ReLU(inplace=True)
        self.maxpool = MaxPool2d(3, stride=2, padding=1)
        self.layer1 = self._make_layer(block, 64, layers[0])
        self.layer2 = self._make_layer(block, 128, layers[1], 2, dilate[0])
        self.layer3 = self._make_layer(block, 256, layers[2], 2, dilate[1])
        self.layer4 = self._make_layer(block, 512, layers[3], 2, dilate[2])
        self.avgpool = AdaptiveAvgPool2d((1, 1))
        self.fc = Linear(512 * block.expansion, num_classes)
        self._initialize(zero_init_residual)

    def _make_layer(self, block: Any, planes: int, blocks: int, stride: int = 1, dilate: bool = False) -> Sequential:
        norm, first_dilation = self._norm_layer, self.dilation
        if dilate:
            self.dilation, stride = self.dilation * stride, 1
        shortcut = None
        if stride != 1 or self.inplanes != planes * block.expansion:
            shortcut = Sequential(conv1x1(self.inplanes, planes * block.expansion, stride), norm(planes * block.expansion))
        common = (self.groups, self.base_width)
        made = [block(self.inplanes, planes, stride, shortcut, *common, first_dilation, norm)]
        self.inplanes = planes * block.expansion
        made += [block(self.inplanes, planes, 1, None, *common, self.dilation, norm) for _ in range(1, blocks)]
        return Sequential(*made)

    def _initialize(self, zero_init_residual: bool) -> None:
        for module in self.modules():
            if isinstance(module, Conv2d):
                init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, BatchNorm2d | GroupNorm):
                init.ones_(module.weight)
                init.zeros_(module.bias)
        if zero_init_residual:  # every block begins as the identity
            for module in self.modules():
                last = module.bn3 if isinstance(module, Bottleneck) else module.bn2 if isinstance(module, BasicBlock) else None
                if last is not None and last.weight is not None:
                    init.zeros_(last.weight)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


def _builder(name: str, block: Any, layers: list[int], **fixed: Any) -> Callable[..., ResNet]:
    def build(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> ResNet:
        pretrained.refuse(name, weights, kwargs)
        return ResNet(block, layers, **{**fixed, **kwargs})

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"{block.__name__} {layers}: a ResNet with untrained weights."
    return build


resnet18 = _builder("resnet18", BasicBlock, [2, 2, 2, 2])
resnet34 = _builder("resnet34", BasicBlock, [3, 4, 6, 3])
resnet50 = _builder("resnet50", Bottleneck, [3, 4, 6, 3])
resnet101 = _builder("resnet101", Bottleneck, [3, 4, 23, 3])
resnet152 = _builder("resnet152", Bottleneck, [3, 8, 36, 3])
resnext50_32x4d = _builder("resnext50_32x4d", Bottleneck, [3, 4, 6, 3], groups=32, width_per_group=4)
resnext101_32x8d = _builder("resnext101_32x8d", Bottleneck, [3, 4, 23, 3], groups=32, width_per_group=8)
resnext101_64x4d = _builder("resnext101_64x4d", Bottleneck, [3, 4, 23, 3], groups=64, width_per_group=4)
wide_resnet50_2 = _builder("wide_resnet50_2", Bottleneck, [3, 4, 6, 3], width_per_group=128)
wide_resnet101_2 = _builder("wide_resnet101_2", Bottleneck, [3, 4, 23, 3], width_per_group=128)
(
    ResNet18_Weights, ResNet34_Weights, ResNet50_Weights, ResNet101_Weights, ResNet152_Weights, ResNeXt50_32X4D_Weights,
    ResNeXt101_32X8D_Weights, ResNeXt101_64X4D_Weights, Wide_ResNet50_2_Weights, Wide_ResNet101_2_Weights,
) = pretrained.weights(
    "ResNet18_Weights", "ResNet34_Weights", "ResNet50_Weights", "ResNet101_Weights", "ResNet152_Weights", "ResNeXt50_32X4D_Weights",
    "ResNeXt101_32X8D_Weights", "ResNeXt101_64X4D_Weights", "Wide_ResNet50_2_Weights", "Wide_ResNet101_2_Weights",
)  # fmt: skip

__all__ = [
    "ResNeXt50_32X4D_Weights", "ResNeXt101_32X8D_Weights", "ResNeXt101_64X4D_Weights", "ResNet", "ResNet18_Weights", "ResNet34_Weights",
    "ResNet50_Weights", "ResNet101_Weights", "ResNet152_Weights", "Wide_ResNet50_2_Weights", "Wide_ResNet101_2_Weights", "resnet18",
    "resnet34", "resnet50", "resnet101", "resnet152", "resnext50_32x4d", "resnext101_32x8d", "resnext101_64x4d", "wide_resnet50_2",
    "wide_resnet101_2",
]  # fmt: skip
