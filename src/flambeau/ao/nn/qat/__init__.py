"""torch.ao.nn.qat: the linear layer whose weight passes through a module of your choice, which watches it or rounds it as it will be quantized."""

from __future__ import annotations

from typing import Any

from flambeau.nn import functional as F
from flambeau.nn.modules.linear import Linear as Float
from flambeau.nn.parameter import Parameter
from flambeau.nn.utils.parametrize import is_parametrized, transfer_parametrizations_and_params, type_before_parametrizations
from flambeau.tensor import Tensor


class Linear(Float):
    """y = x f(A)ᵀ + b, f being the module that `qconfig.weight` makes. (*, in_features) -> (*, out_features)."""

    _FLOAT_MODULE = Float

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, qconfig: Any = None, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(in_features, out_features, bias, device, dtype)
        if not qconfig:
            raise AssertionError("qconfig must be provided for a QAT module: it says how the weight is rounded")
        self.qconfig = qconfig
        self.weight_fake_quant = qconfig.weight(factory_kwargs={"device": device, "dtype": dtype})

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight_fake_quant(self.weight), self.bias)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Linear:
        """The kin of an nn.Linear, whose `qconfig` says how; they share the parameters."""
        if type_before_parametrizations(mod) is not cls._FLOAT_MODULE:
            raise AssertionError(f"qat.{cls.__name__}.from_float only works for {cls._FLOAT_MODULE.__name__}, got {type(mod).__name__}")
        if not getattr(mod, "qconfig", None):
            raise AssertionError("Input float module must have qconfig defined, such as torch.ao.quantization.get_default_qconfig()")
        made = cls(mod.in_features, mod.out_features, bias=mod.bias is not None, qconfig=mod.qconfig)
        for name in ("weight", "bias"):
            if is_parametrized(mod, name):
                transfer_parametrizations_and_params(mod, made, name)
            else:
                setattr(made, name, getattr(mod, name))
        return made

    def to_float(self) -> Float:
        """The float layer with the same numbers."""
        made = Float(self.in_features, self.out_features, self.bias is not None)
        made.weight = Parameter(self.weight.detach())
        made.bias = None if self.bias is None else Parameter(self.bias.detach())
        return made.train(self.training)
