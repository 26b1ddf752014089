"""torch.ao.nn.qat: layers that are trained with their weight rounded, as it will be when it is quantized.

A layer is its float kin with `weight_fake_quant`, made by `qconfig.weight`, between the weight and the computation.
"""

from __future__ import annotations

from typing import Any, Self

from flambeau.nn.functional import linear
from flambeau.nn.modules import conv
from flambeau.nn.modules import linear as dense
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter
from flambeau.nn.utils.parametrize import is_parametrized, transfer_parametrizations_and_params, type_before_parametrizations
from flambeau.tensor import Tensor


class _Rounded(Module):
    """What the layers have in common: where the rounding comes from, and the ways from and to the float layer."""

    _FLOAT_MODULE: Any
    _settings: tuple[str, ...]

    def _round_with(self, qconfig: Any, **factory_kwargs: Any) -> None:
        if not qconfig:
            raise AssertionError("qconfig must be provided for a QAT module: it says how the weight is rounded")
        self.qconfig = qconfig
        self.weight_fake_quant = qconfig.weight(factory_kwargs=factory_kwargs)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Self:
        """The kin of a float layer, whose `qconfig` says how; they share the parameters."""
        kind = type_before_parametrizations(mod)
        if kind is not cls._FLOAT_MODULE:
            raise AssertionError(f"qat.{cls.__name__}.from_float only works for {cls._FLOAT_MODULE.__name__}, got {kind.__name__}")
        if not getattr(mod, "qconfig", None):
            raise AssertionError("Input float module must have qconfig defined, such as torch.ao.quantization.get_default_qconfig()")
        made = cls(**cls._arguments(mod), qconfig=mod.qconfig)
        for name in ("weight", "bias"):
            if is_parametrized(mod, name):
                transfer_parametrizations_and_params(mod, made, name)
            else:
                setattr(made, name, getattr(mod, name))
        return made

    def to_float(self) -> Module:
        """The float layer of the same parameters."""
        made = self._FLOAT_MODULE(**self._arguments(self))
        made.weight = Parameter(self.weight.detach())
        if self.bias is not None:
            made.bias = Parameter(self.bias.detach())
        return made.train(self.training)

    @classmethod
    def _arguments(cls, layer: Any) -> dict[str, Any]:
        return {name: getattr(layer, name) for name in cls._settings} | {"bias": layer.bias is not None}


class Linear(_Rounded, dense.Linear):
    """y = x round(A)ᵀ + b. (*, in_features) -> (*, out_features)."""

    _FLOAT_MODULE = dense.Linear
    _settings = ("in_features", "out_features")

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, qconfig: Any = None, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(in_features, out_features, bias, device, dtype)
        self._round_with(qconfig, device=device, dtype=dtype)

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight_fake_quant(self.weight), self.bias)


class _Conv(_Rounded, conv._Conv):
    _settings = ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups", "padding_mode")

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
        bias: bool = True, padding_mode: str = "zeros", qconfig: Any = None, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype)
        self._round_with(qconfig, device=device, dtype=dtype)

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight_fake_quant(self.weight), self.bias)


class Conv1d(_Conv, conv.Conv1d):
    """nn.Conv1d with a rounded weight."""

    _FLOAT_MODULE = conv.Conv1d


class Conv2d(_Conv, conv.Conv2d):
    """nn.Conv2d with a rounded weight."""

    _FLOAT_MODULE = conv.Conv2d


class Conv3d(_Conv, conv.Conv3d):
    """nn.Conv3d with a rounded weight."""

    _FLOAT_MODULE = conv.Conv3d
