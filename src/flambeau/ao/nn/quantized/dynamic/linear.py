"""A linear layer with 8-bit weights."""

from __future__ import annotations

from typing import Any

from flambeau import dtypes
from flambeau.ao.nn.quantized.packed import LinearPackedParams
from flambeau.ao.quantization.observer import quantize_weight, weight_observer
from flambeau.nn.modules.linear import Linear as Float
from flambeau.nn.modules.linear import NonDynamicallyQuantizableLinear
from flambeau.nn.modules.module import Module
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import tensor, zeros
from flambeau.tensor.quantized.quantized_tensor import quantize_per_tensor


class Linear(Module):
    """y = x Aᵀ + b with weights of int8 (or float16): a quarter (half) of the memory, and of the traffic that a small batch waits for.

    Shape: input (*, in_features), of at least two dimensions -> output (*, out_features), float32 both
    """

    _version = 4

    def __init__(self, in_features: int, out_features: int, bias_: bool = True, dtype: Any = dtypes.qint8) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.scale, self.zero_point, self.version = 1.0, 0, 4
        if dtype not in (dtypes.qint8, dtypes.float16):
            raise RuntimeError(f"Unsupported dtype specified for quantized Linear: {dtype}. Choose torch.qint8 or torch.float16")
        weight = zeros((out_features, in_features))
        self._packed_params = LinearPackedParams(dtype)
        self.set_weight_bias(
            quantize_per_tensor(weight, 1.0, 0, dtype) if dtype is dtypes.qint8 else weight, zeros(out_features) if bias_ else None
        )

    def forward(self, x: Tensor) -> Tensor:
        return self._packed_params._packed_params.content(x, (self.version or 0) >= 4)

    def weight(self) -> Tensor:
        """The weight (out_features, in_features), quantized."""
        return self._packed_params._weight_bias()[0]

    def bias(self) -> Tensor | None:
        """The bias (out_features,), float32, or None."""
        return self._packed_params._packed_params.content.bias

    def set_weight_bias(self, w: Tensor, b: Tensor | None) -> None:
        """Pack others."""
        self._packed_params.set_weight_bias(w, b)

    def _get_name(self) -> str:
        return "DynamicQuantizedLinear"

    def __repr__(self) -> str:
        return f"{self._get_name()}({self.extra_repr()})"  # the packed weights are not shown

    def extra_repr(self) -> str:
        said = f"in_features={self.in_features}, out_features={self.out_features}, dtype={self._packed_params.dtype}"
        return said + f", qscheme={self._scheme()}" if self._packed_params.dtype is dtypes.qint8 else said

    def _scheme(self) -> Any:
        return self._packed_params._packed_params.content.scheme()

    @classmethod
    def from_float(cls, mod: Module, use_precomputed_fake_quant: bool = False) -> Linear:
        """The quantized kin of an nn.Linear, whose `qconfig` says how."""
        if type(mod) not in (Float, NonDynamicallyQuantizableLinear):
            raise AssertionError(f"from_float only works for nn.Linear, found {type(mod)}")
        if not hasattr(mod, "qconfig"):
            raise AssertionError("Input float module must have qconfig defined, such as torch.ao.quantization.default_dynamic_qconfig")
        observer = weight_observer(mod.qconfig)
        if observer.dtype not in (dtypes.qint8, dtypes.float16):
            found = f"qint8 and float16, got: {observer.dtype}"
            raise AssertionError(f"weights of a dynamic Linear can be {found}")
        made = cls(mod.in_features, mod.out_features, dtype=observer.dtype)
        made.set_weight_bias(quantize_weight(mod.weight, observer), mod.bias)
        return made

    def _save_to_state_dict(self, destination: dict, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "scale"] = tensor(self.scale)
        destination[prefix + "zero_point"] = tensor(self.zero_point)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs) -> None:
        self.version = local_metadata.get("version")
        self.scale = float(state_dict.pop(prefix + "scale"))
        self.zero_point = int(state_dict.pop(prefix + "zero_point"))
        super()._load_from_state_dict(state_dict, prefix, local_metadata, False, missing_keys, unexpected_keys, error_msgs)
