"""The packed weight and bias of a linear layer, as a module: what it is in a state_dict, and how it comes back from one."""

from __future__ import annotations

from typing import Any

from flambeau import dtypes
from flambeau.nn.modules.module import Module
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import zeros
from flambeau.tensor.quantized.packed_weights import linear_prepack, linear_prepack_fp16, linear_unpack
from flambeau.tensor.quantized.quantized_tensor import quantize_per_tensor
from flambeau.tensor.quantized.script_object import ScriptObject


class LinearPackedParams(Module):
    """Weight and bias in one object, of dtype qint8 or float16. In a state_dict: "dtype", and "_packed_params", which is (weight, bias)."""

    _version = 3

    def __init__(self, dtype: Any = dtypes.qint8) -> None:
        super().__init__()
        self.dtype = dtype
        nothing = zeros((1, 1))
        self.set_weight_bias(quantize_per_tensor(nothing, 1.0, 0, dtype) if dtype is dtypes.qint8 else nothing, None)

    def set_weight_bias(self, weight: Tensor, bias: Tensor | None) -> None:
        """Pack them."""
        if self.dtype not in (dtypes.qint8, dtypes.float16):
            raise RuntimeError(f"Unsupported dtype on dynamic quantized linear: {self.dtype}. Choose torch.qint8 or torch.float16")
        prepack = linear_prepack if self.dtype is dtypes.qint8 else linear_prepack_fp16
        self._packed_params: ScriptObject = prepack(weight, bias)

    def _weight_bias(self) -> tuple[Tensor, Tensor | None]:
        return linear_unpack(self._packed_params)

    def forward(self, x: Tensor) -> Tensor:
        return x

    def __repr__(self) -> str:
        return repr(self._weight_bias())

    def _save_to_state_dict(self, destination: dict, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "dtype"] = self.dtype
        destination[prefix + "_packed_params"] = self._weight_bias()

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs) -> None:
        version = local_metadata.get("version") or 1
        self.dtype = state_dict.pop(prefix + "dtype") if version > 1 else dtypes.qint8
        if version < 3:
            weight, bias = state_dict.pop(prefix + "weight"), state_dict.pop(prefix + "bias")
        else:
            weight, bias = state_dict.pop(prefix + "_packed_params")
        self.set_weight_bias(weight, bias)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, False, missing_keys, unexpected_keys, error_msgs)
