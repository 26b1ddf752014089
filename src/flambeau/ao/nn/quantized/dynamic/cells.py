"""Single steps of recurrent networks with 8-bit weights: RNNCell, LSTMCell, GRUCell."""

from __future__ import annotations

from typing import Any

from flambeau import dtypes
from flambeau.ao.nn.quantized.dynamic.rnn import pack_weight_bias
from flambeau.ao.quantization.observer import quantize_weight, weight_observer
from flambeau.nn.modules import rnn as float_rnn
from flambeau.nn.modules.module import Module
from flambeau.ops import quantized
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import zeros
from flambeau.tensor.making.random_factories import randn
from flambeau.tensor.quantized.packed_weights import linear_unpack
from flambeau.tensor.quantized.quantized_tensor import quantize_per_tensor
from flambeau.tensor.quantized.script_object import ScriptObject

NAMES = ("ih", "hh")


class RNNCellBase(Module):
    """What the cells share: the packed weights of input and state. input (N, input_size), states (N, hidden_size), float32."""

    __constants__ = ["bias", "hidden_size", "input_size"]
    _packed_weight_ih: ScriptObject
    _packed_weight_hh: ScriptObject

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, num_chunks: int = 4, dtype: Any = dtypes.qint8) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias, self.weight_dtype = input_size, hidden_size, bias, dtype
        rows = num_chunks * hidden_size
        weights = [randn(rows, columns) for columns in (input_size, hidden_size)]
        if dtype is dtypes.qint8:
            weights = [quantize_per_tensor(weight, 1, 0, dtype) for weight in weights]
        biases = [randn(rows) if bias else None for _ in NAMES]
        self.set_weight_bias(_by_name(weights, biases))

    def set_weight_bias(self, weight_bias_dict: dict[str, dict]) -> None:
        """Pack {"weight": {"weight_ih", "weight_hh"}, "bias": {"bias_ih", "bias_hh"}}."""
        for name in NAMES:
            weight, bias = (weight_bias_dict[kind][f"{kind}_{name}"] for kind in ("weight", "bias"))
            setattr(self, f"_packed_weight_{name}", pack_weight_bias(weight, bias, self.weight_dtype))

    def _weight_bias(self) -> dict[str, dict]:
        parts = [linear_unpack(packed) for packed in (self._packed_weight_ih, self._packed_weight_hh)]
        return _by_name([weight for weight, _ in parts], [bias for _, bias in parts])

    def get_weight(self) -> dict[str, Tensor]:
        """weight_ih and weight_hh."""
        return self._weight_bias()["weight"]

    def get_bias(self) -> dict[str, Tensor | None]:
        """bias_ih and bias_hh."""
        return self._weight_bias()["bias"]

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> RNNCellBase:
        """The quantized kin of a cell, whose `qconfig` says how."""
        kinds = {float_rnn.LSTMCell: LSTMCell, float_rnn.GRUCell: GRUCell, float_rnn.RNNCell: RNNCell}
        if type(mod) not in kinds:
            raise AssertionError(f"RNNCellBase.from_float only works for LSTMCell, GRUCell and RNNCell of nn, found {type(mod).__name__}")
        if not hasattr(mod, "qconfig"):
            raise AssertionError("Input float module must have qconfig defined, such as torch.ao.quantization.default_dynamic_qconfig")
        if not mod.bias:
            raise AssertionError("mod.bias must be True")
        dtype = weight_observer(mod.qconfig).dtype
        if dtype not in (dtypes.qint8, dtypes.float16):
            raise RuntimeError(f"Unsupported dtype for dynamic RNN quantization: {dtype}")
        options = {"nonlinearity": mod.nonlinearity} if type(mod) is float_rnn.RNNCell else {}
        made = kinds[type(mod)](mod.input_size, mod.hidden_size, bias=mod.bias, dtype=dtype, **options)
        weights = [quantize_weight(weight, weight_observer(mod.qconfig)) for weight in (mod.weight_ih, mod.weight_hh)]
        made.set_weight_bias(_by_name(weights, [mod.bias_ih, mod.bias_hh]))
        return made

    def _save_to_state_dict(self, destination: dict, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name in NAMES:
            destination[f"{prefix}_packed_weight_{name}"] = getattr(self, f"_packed_weight_{name}")

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs) -> None:
        for name in NAMES:
            setattr(self, f"_packed_weight_{name}", state_dict.pop(f"{prefix}_packed_weight_{name}"))
        super()._load_from_state_dict(state_dict, prefix, local_metadata, False, missing_keys, unexpected_keys, error_msgs)

    def _step(self, cell: str, input: Tensor, hx: Any, states: int) -> tuple:
        if input.size(1) != self.input_size:
            raise RuntimeError(f"input has inconsistent input_size: got {input.size(1)}, expected {self.input_size}")
        if hx is None:
            nothing = zeros((input.size(0), self.hidden_size), dtype=input.dtype, device=input.device)
            hx = (nothing,) * states
        for number, state in enumerate(hx):
            which = f"hidden[{number}]" if states > 1 else "hidden"
            if state.size(0) != input.size(0):
                raise RuntimeError(f"Input batch size {input.size(0)} doesn't match {which} batch size {state.size(0)}")
            if state.size(1) != self.hidden_size:
                raise RuntimeError(f"{which} has inconsistent hidden_size: {state.size(1)}, but the weights are for {self.hidden_size}")
        gates, sums = self._packed_weight_ih.content(input, True), self._packed_weight_hh.content(hx[0], True)
        return quantized.step(cell, gates, sums, *hx)

    extra_repr = float_rnn.RNNCellBase.extra_repr

    def _get_name(self) -> str:
        return f"DynamicQuantized{type(self).__name__}"


def _by_name(weights: list, biases: list) -> dict[str, dict]:
    return {
        kind: {f"{kind}_{name}": value for name, value in zip(NAMES, values, strict=True)}
        for kind, values in (("weight", weights), ("bias", biases))
    }


class RNNCell(RNNCellBase):
    """nn.RNNCell with 8-bit weights. input (N, input_size), hx (N, hidden_size) -> (N, hidden_size)."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", dtype: Any = dtypes.qint8) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=1, dtype=dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        return self._step(f"rnn_{self.nonlinearity}", input, None if hx is None else (hx,), 1)[0]


class LSTMCell(RNNCellBase):
    """nn.LSTMCell with 8-bit weights. input (N, input_size), hx = (h, c), each (N, hidden_size) -> (h', c')."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, dtype: Any = dtypes.qint8) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=4, dtype=dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        return self._step("lstm", input, hx, 2)


class GRUCell(RNNCellBase):
    """nn.GRUCell with 8-bit weights. input (N, input_size), hx (N, hidden_size) -> (N, hidden_size)."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, dtype: Any = dtypes.qint8) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=3, dtype=dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._step("gru", input, None if hx is None else (hx,), 1)[0]
