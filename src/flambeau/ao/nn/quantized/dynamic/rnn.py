"""LSTM and GRU with 8-bit weights. The steps are computed by ops/quantized.py."""

from __future__ import annotations

import numbers
import warnings
from typing import Any

from flambeau import dtypes
from flambeau.ao.quantization.observer import quantize_weight, weight_observer
from flambeau.nn.modules import rnn as float_rnn
from flambeau.nn.modules.container import ModuleList
from flambeau.nn.modules.module import Module
from flambeau.nn.utils.rnn import PackedSequence
from flambeau.ops import quantized
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import zeros
from flambeau.tensor.making.random_factories import randn
from flambeau.tensor.quantized.packed_weights import cell_params, linear_prepack, linear_prepack_fp16
from flambeau.tensor.quantized.quantized_tensor import QuantizedTensor, quantize_per_tensor
from flambeau.tensor.quantized.script_object import ScriptObject


class PackedParameter(Module):
    """The packed weights of one layer in one direction, in a state_dict as "param"."""

    def __init__(self, param: ScriptObject) -> None:
        super().__init__()
        self.param = param

    def _save_to_state_dict(self, destination: dict, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "param"] = self.param

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs) -> None:
        self.param = state_dict.pop(prefix + "param")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, False, missing_keys, unexpected_keys, error_msgs)


def pack_weight_bias(qweight: Tensor, bias: Tensor | None, dtype: Any) -> ScriptObject:
    """Pack a quantized weight, or with dtype float16 one of float32."""
    return linear_prepack(qweight, bias) if dtype is dtypes.qint8 else linear_prepack_fp16(qweight, bias)


class RNNBase(Module):
    """What LSTM and GRU share: packed weights by layer and direction (`_all_weight_values`), checks, packed sequences.

    Shape: as nn.LSTM and nn.GRU, but batches only: (T, N, input_size), or (N, T, input_size) with batch_first. float32.
    """

    _version = 2
    _FLOAT_MODULE: type = float_rnn.RNNBase

    def __init__(
        self, mode: str, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, dtype: Any = dtypes.qint8,
    ) -> None:  # fmt: skip
        super().__init__()
        if mode not in ("LSTM", "GRU"):
            raise ValueError(f"Unrecognized RNN mode: {mode}")
        if not isinstance(dropout, numbers.Number) or not 0 <= dropout <= 1 or isinstance(dropout, bool):  # type: ignore[operator]
            raise ValueError(f"dropout is the probability that an element becomes zero, in [0, 1], found {dropout}")
        if dropout > 0 and num_layers == 1:  # type: ignore[operator]
            found = f"got dropout={dropout} and num_layers={num_layers}"
            warnings.warn(
                f"dropout comes after all but the last recurrent layer, so it expects num_layers greater than 1, but {found}", stacklevel=3
            )
        self.mode, self.input_size, self.hidden_size, self.num_layers, self.bias = mode, input_size, hidden_size, num_layers, bias
        self.batch_first, self.dropout, self.bidirectional, self.dtype = batch_first, float(dropout), bidirectional, dtype
        self.version, self.training = 2, False
        rows, given = (4 if mode == "LSTM" else 3) * hidden_size, {}
        for layer, end in self._parts():
            features = input_size if layer == 0 else hidden_size * self._ways()
            for name, columns in (("ih", features), ("hh", hidden_size)):
                weight = randn(rows, columns)
                given[f"weight_{name}_l{layer}{end}"] = quantize_per_tensor(weight, 0.1, 0, dtype) if dtype is dtypes.qint8 else weight
                given[f"bias_{name}_l{layer}{end}"] = randn(rows)
        self.set_weight_bias(given)

    def _ways(self) -> int:
        return 2 if self.bidirectional else 1

    def _parts(self) -> list[tuple[int, str]]:
        """(layer, ending of its names) of each layer and direction."""
        return [(layer, end) for layer in range(self.num_layers) for end in ("", "_reverse")[: self._ways()]]

    # -- weights

    def set_weight_bias(self, weight_bias_dict: dict[str, Tensor]) -> None:
        """Pack weights, quantized or float32 (for float16), by the names that nn.LSTM gives them."""
        made = []
        for layer, end in self._parts():
            packed = []
            for name in ("ih", "hh"):
                weight, bias = (weight_bias_dict[f"{kind}_{name}_l{layer}{end}"] for kind in ("weight", "bias"))
                packed.append(pack_weight_bias(weight, bias, dtypes.qint8 if isinstance(weight, QuantizedTensor) else dtypes.float16))
            made.append(PackedParameter(cell_params(packed[0], packed[1], (self.version or 0) >= 2)))
        self._all_weight_values = ModuleList(made)

    def _weight_bias(self) -> dict[str, dict[str, Tensor]]:
        found: dict[str, dict[str, Tensor]] = {"weight": {}, "bias": {}}
        for (layer, end), part in zip(self._parts(), self._all_weight_values, strict=True):
            for name, packed in zip(("ih", "hh"), part.param.content.packed, strict=True):  # type: ignore[union-attr]
                for kind, value in zip(("weight", "bias"), packed.content.state(), strict=True):
                    found[kind][f"{kind}_{name}_l{layer}{end}"] = value
        return found

    def get_weight(self) -> dict[str, Tensor]:
        """The weights by the names that nn.LSTM gives them."""
        return self._weight_bias()["weight"]

    def get_bias(self) -> dict[str, Tensor]:
        """The biases by the names that nn.LSTM gives them."""
        return self._weight_bias()["bias"]

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> RNNBase:
        """The quantized kin of an nn.LSTM or nn.GRU, whose `qconfig` says how."""
        if type(mod) not in (float_rnn.LSTM, float_rnn.GRU):
            raise AssertionError("RNNBase.from_float only works for LSTM and GRU")
        if not hasattr(mod, "qconfig"):
            raise AssertionError("Input float module must have qconfig defined, such as torch.ao.quantization.default_dynamic_qconfig")
        if not mod.bias:
            raise AssertionError("mod.bias must be True")
        if mod.proj_size:
            raise NotImplementedError("quantize_dynamic: an LSTM with proj_size cannot be quantized. Leave it out of qconfig_spec")
        dtype = weight_observer(mod.qconfig).dtype
        if dtype not in (dtypes.qint8, dtypes.float16):
            raise RuntimeError(f"Unsupported dtype for dynamic RNN quantization: {dtype}")
        options = mod.input_size, mod.hidden_size, mod.num_layers, mod.bias, mod.batch_first, mod.dropout, mod.bidirectional
        made = (LSTM if mod.mode == "LSTM" else GRU)(*options, dtype)
        weights = {name: getattr(mod, name) for name in mod._flat_weights_names}
        for name in weights:
            if name.startswith("weight"):
                weights[name] = quantize_weight(weights[name], weight_observer(mod.qconfig))
        made.set_weight_bias(weights)
        return made

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs) -> None:
        self.version = local_metadata.get("version")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, False, missing_keys, unexpected_keys, error_msgs)

    # -- forward

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        packed = isinstance(input, PackedSequence)
        data, batch_sizes, order, back = input if packed else (input, None, None, None)
        self.check_input(data, batch_sizes)
        expected = self.get_expected_hidden_size(data, batch_sizes)
        if hx is None:
            nothing = zeros(expected, dtype=data.dtype, device=data.device)
            hx = (nothing, nothing) if self.mode == "LSTM" else nothing
        else:
            hx = self.permute_hidden(hx, order)
        self.check_forward_args(data, hx, batch_sizes)
        params = [part.param.content for part in self._all_weight_values]  # type: ignore[union-attr]
        options = (params, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional)
        arguments = (data, batch_sizes, hx, *options) if packed else (data, hx, *options, self.batch_first)
        output, *state = quantized.network(self.mode.lower(), packed, arguments)
        hidden = self.permute_hidden(tuple(state) if len(state) > 1 else state[0], back)
        return (PackedSequence(output, batch_sizes, order, back) if packed else output), hidden

    check_input = float_rnn.RNNBase._check_shape

    def get_expected_hidden_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        """(layers * directions, N, hidden_size)."""
        samples = int(batch_sizes[0]) if batch_sizes is not None else input.size(0 if self.batch_first else 1)
        return self.num_layers * self._ways(), samples, self.hidden_size

    def check_hidden_size(self, hx: Tensor, expected_hidden_size: tuple, msg: str = "Expected hidden size {}, got {}") -> None:
        """RuntimeError unless a state has this shape."""
        if tuple(hx.shape) != expected_hidden_size:
            raise RuntimeError(msg.format(expected_hidden_size, list(hx.shape)))

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        """RuntimeError unless input and states fit the weights and each other."""
        expected = self.get_expected_hidden_size(input, batch_sizes)
        for number, state in enumerate(hidden if self.mode == "LSTM" else (hidden,)):
            which = f"hidden[{number}]" if self.mode == "LSTM" else "hidden"
            self.check_hidden_size(state, expected, f"Expected {which} size {{}}, got {{}}")

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        """The state with its samples in another order."""
        if permutation is None:
            return hx
        return tuple(s.index_select(1, permutation) for s in hx) if isinstance(hx, tuple) else hx.index_select(1, permutation)

    def extra_repr(self) -> str:
        usual = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0, "bidirectional": False}
        shown = [f"{self.input_size}, {self.hidden_size}"]
        return ", ".join(shown + [f"{name}={getattr(self, name)}" for name, value in usual.items() if getattr(self, name) != value])

    def _get_name(self) -> str:
        return f"DynamicQuantized{self.mode}"

    def __repr__(self) -> str:
        return f"{self._get_name()}({self.extra_repr()})"  # the packed weights are not shown


class LSTM(RNNBase):
    """nn.LSTM with 8-bit weights. input (T, N, input_size), hx = (h, c) -> output (T, N, directions * hidden_size), (h, c)."""

    _FLOAT_MODULE = float_rnn.LSTM

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)


class GRU(RNNBase):
    """nn.GRU with 8-bit weights. input (T, N, input_size), hx -> output (T, N, directions * hidden_size), h."""

    _FLOAT_MODULE = float_rnn.GRU

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("GRU", *args, **kwargs)
