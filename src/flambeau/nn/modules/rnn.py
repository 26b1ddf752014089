"""Recurrent layers: RNN, GRU and LSTM over whole sequences, and their cells for one step. The mathematics is in ops/recurrent.py."""

from __future__ import annotations

import math
import numbers
import warnings
from typing import Any

from flambeau.eager import autocast
from flambeau.nn import init
from flambeau.nn.modules.module import Module
from flambeau.nn.utils.rnn import PackedSequence
from flambeau.ops import OPS
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import empty, zeros
from flambeau.tensor.making.parameter import Parameter

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNBase", "RNNCell", "RNNCellBase"]
GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


class RNNBase(Module):
    """What RNN, GRU and LSTM share: weights by layer and direction, checks, and the handling of batches and packed sequences.

    Weights, for layer k and each direction (the second has "_reverse" at the end of its names), uniform in ±1/√hidden_size:
        weight_ih_l[k]  (gates * hidden_size, features)     bias_ih_l[k]  (gates * hidden_size,)
        weight_hh_l[k]  (gates * hidden_size, hidden_size)  bias_hh_l[k]  (gates * hidden_size,)
        weight_hr_l[k]  (proj_size, hidden_size), for an LSTM with projections
    """

    __constants__ = ["batch_first", "bias", "bidirectional", "dropout", "hidden_size", "input_size", "mode", "num_layers", "proj_size"]

    def __init__(
        self, mode: str, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.mode, self.input_size, self.hidden_size, self.num_layers, self.bias = mode, input_size, hidden_size, num_layers, bias
        self.batch_first, self.dropout, self.bidirectional, self.proj_size = batch_first, float(dropout), bidirectional, proj_size
        _check_options(self, dropout)
        self._flat_weights_names: list[str] = []
        self._all_weights: list[list[str]] = []
        rows = GATES[mode] * hidden_size
        ways = 2 if bidirectional else 1
        state = proj_size or hidden_size
        for layer in range(num_layers):
            for end in ("", "_reverse")[:ways]:
                shapes: dict[str, tuple[int, ...]] = {
                    "weight_ih": (rows, input_size if layer == 0 else state * ways),
                    "weight_hh": (rows, state),
                }
                if bias:
                    shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
                if proj_size:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                names = [f"{name}_l{layer}{end}" for name in shapes]
                for name, shape in zip(names, shapes.values(), strict=True):
                    setattr(self, name, Parameter(empty(shape, device=device, dtype=dtype)))
                self._flat_weights_names += names
                self._all_weights.append(names)
        self.reset_parameters()

    @property
    def _flat_weights(self) -> list[Tensor]:
        return [getattr(self, name) for name in self._flat_weights_names]

    @_flat_weights.setter
    def _flat_weights(self, weights: list[Tensor]) -> None:
        for name, weight in zip(self._flat_weights_names, weights, strict=True):
            setattr(self, name, weight)

    def __getstate__(self) -> dict:
        return super().__getstate__() | {"_flat_weights": self._flat_weights}  # PyTorch's modules keep them, and want them back

    def __setstate__(self, state: dict) -> None:
        super().__setstate__({name: value for name, value in state.items() if name != "_flat_weights"})

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The weights of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def flatten_parameters(self) -> None:
        """Nothing: weights need not lie side by side here."""

    def reset_parameters(self) -> None:
        """Draw new weights, uniform in ±1/√hidden_size."""
        bound = 1 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self) -> str:
        shown = [f"{self.input_size}, {self.hidden_size}"]
        usual = {"proj_size": 0, "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0, "bidirectional": False}
        return ", ".join(shown + [f"{name}={getattr(self, name)}" for name, value in usual.items() if getattr(self, name) != value])

    # -- checks: PyTorch's names, since programs override them

    def check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        """RuntimeError or ValueError unless the input fits the weights."""
        weight = getattr(self, self._flat_weights_names[0])
        if input.dtype is not weight.dtype and autocast.active() is None:
            raise ValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({weight.dtype}). "
                f"Convert input: input.to({weight.dtype}), or convert model: model.to({input.dtype})"
            )
        self._check_shape(input, batch_sizes)

    def _check_shape(self: Any, input: Tensor, batch_sizes: Tensor | None) -> None:
        expected = 2 if batch_sizes is not None else 3
        if input.dim() != expected:
            raise RuntimeError(f"input must have {expected} dimensions, got {input.dim()}")
        if self.input_size != input.size(-1):
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size: the layer takes {self.input_size} numbers a step, found {input.size(-1)}"
            )

    def get_expected_hidden_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        """(layers * directions, N, size of the state)."""
        samples = int(batch_sizes[0]) if batch_sizes is not None else input.size(0 if self.batch_first else 1)
        return self.num_layers * (2 if self.bidirectional else 1), samples, self.proj_size or self.hidden_size

    def get_expected_cell_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        """The same, of an LSTM's cell state, which is not projected."""
        return *self.get_expected_hidden_size(input, batch_sizes)[:2], self.hidden_size

    def check_hidden_size(
        self, hx: Tensor, expected_hidden_size: tuple[int, int, int], msg: str = "Expected hidden size {}, got {}"
    ) -> None:
        """RuntimeError unless a state has this shape."""
        if tuple(hx.shape) != expected_hidden_size:
            raise RuntimeError(msg.format(expected_hidden_size, list(hx.shape)))

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        """RuntimeError unless input and state fit the weights and each other."""
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden, self.get_expected_hidden_size(input, batch_sizes))

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        """The state with its samples in another order."""
        return hx if permutation is None else _reordered(hx, permutation)

    # -- forward

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        packed = isinstance(input, PackedSequence)
        if packed:
            data, batch_sizes, order, back = input
            batched = True
        else:
            if input.dim() not in (2, 3):
                raise ValueError(
                    f"{type(self).__name__}: Expected input to be 2D or 3D, steps and features with or without a batch; found {input.dim()}D"
                )
            batch_sizes = order = back = None
            batched = input.dim() == 3
            self._check_ranks(batched, hx)
            data = input if batched else input.unsqueeze(0 if self.batch_first else 1)
            hx = hx if batched or hx is None else _each(hx, lambda state: state.unsqueeze(1))
        if hx is None:
            hx = self._zero_state(data, batch_sizes)
        else:
            hx = self.permute_hidden(hx, order)
        self.check_forward_args(data, hx, batch_sizes)
        options = (self._flat_weights, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional)
        run = OPS[self.mode.lower()]
        found = run(data, batch_sizes, hx, *options) if packed else run(data, hx, *options, self.batch_first)
        output, state = found[0], found[1] if len(found) == 2 else tuple(found[1:])
        if packed:
            return PackedSequence(output, batch_sizes, order, back), self.permute_hidden(state, back)
        if not batched:
            return output.squeeze(0 if self.batch_first else 1), _each(state, lambda s: s.squeeze(1))
        return output, self.permute_hidden(state, back)

    def _check_ranks(self, batched: bool, hx: Any) -> None:
        wanted = 3 if batched else 2
        if hx is not None and hx.dim() != wanted:
            kind = f"{'batched' if batched else 'unbatched'} {wanted}-D"
            raise RuntimeError(f"For {kind} input, hx should also be {wanted}-D but got {hx.dim()}-D tensor")

    def _zero_state(self, data: Tensor, batch_sizes: Tensor | None) -> Any:
        return zeros(self.get_expected_hidden_size(data, batch_sizes), dtype=data.dtype, device=data.device)


def _check_options(self: RNNBase, dropout: Any) -> None:
    if not isinstance(dropout, numbers.Number) or not 0 <= dropout <= 1 or isinstance(dropout, bool):  # type: ignore[operator]
        raise ValueError(f"dropout should be a share of elements, a number from 0 to 1; found {dropout!r}")
    if dropout > 0 and self.num_layers == 1:  # type: ignore[operator]
        warnings.warn(
            f"dropout option adds dropout between layers, so non-zero dropout expects num_layers above 1: dropout={dropout} does nothing here",
            stacklevel=4,
        )
    for kind, names in ((bool, ("bias", "batch_first")), (int, ("input_size", "hidden_size"))):
        for name in names:
            if not isinstance(getattr(self, name), kind):
                raise TypeError(f"{name} should be of type {kind.__name__}, got: {type(getattr(self, name)).__name__}")
    for name in ("input_size", "hidden_size", "num_layers"):
        if getattr(self, name) <= 0:
            raise ValueError(f"{name} must be greater than zero")
    if self.proj_size < 0:
        raise ValueError(f"proj_size should be a positive number, or zero for no projection; found {self.proj_size}")
    if self.proj_size >= self.hidden_size:
        raise ValueError("proj_size has to be smaller than hidden_size")
    if self.mode not in GATES:
        raise ValueError(f"Unrecognized RNN mode: {self.mode}")


def _each(states: Any, change: Any) -> Any:
    return tuple(map(change, states)) if isinstance(states, tuple) else change(states)


def _reordered(states: Any, permutation: Tensor) -> Any:
    return _each(states, lambda state: _apply_permutation(state, permutation))


def _apply_permutation(tensor: Tensor, permutation: Tensor, dim: int = 1) -> Tensor:
    """Samples in another order; layers copied from PyTorch's import it."""
    return tensor.index_select(dim, permutation)


apply_permutation = _apply_permutation


class RNN(RNNBase):
    """h_t = tanh(W_ih x_t + b_ih + W_hh h_(t-1) + b_hh), or relu of it, in one or more layers.

    Shape:
        input   (T, N, input_size), (N, T, input_size) with batch_first, (T, input_size) for one sample, or a PackedSequence
        hx      (layers * directions, N, hidden_size), zeros unless given
        output  (T, N, directions * hidden_size), and the last state, as hx

    >>> tuple(RNN(3, 5)(empty(7, 2, 3))[0].shape)
    (7, 2, 5)
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse_projection(kwargs)
        *sizes, nonlinearity = args[:4] if len(args) > 3 else (*args, kwargs.pop("nonlinearity", "tanh"))
        mode = f"RNN_{nonlinearity}".upper()
        if mode not in GATES or nonlinearity != nonlinearity.lower():
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}': an RNN has 'tanh' or 'relu'")
        self.nonlinearity = nonlinearity
        super().__init__(mode, *sizes, *args[4:], **kwargs)


def _refuse_projection(options: dict) -> None:
    if "proj_size" in options:
        raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")


class GRU(RNNBase):
    """Gated recurrent units (Cho et al., 2014), in one or more layers.

        r, z = sigmoid(W_ir x + b_ir + W_hr h + b_hr), sigmoid(W_iz x + b_iz + W_hz h + b_hz)
        n    = tanh(W_in x + b_in + r * (W_hn h + b_hn))
        h'   = (1 - z) * n + z * h

    Shape: as RNN
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse_projection(kwargs)
        super().__init__("GRU", *args, **kwargs)


class LSTM(RNNBase):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997), in one or more layers.

        i, f, o = sigmoid(...), sigmoid(...), sigmoid(...)    g = tanh(...)    each of W_i x + b_i + W_h h + b_h
        c'      = f * c + i * g
        h'      = o * tanh(c')          (W_hr times that, with proj_size)

    Shape:
        input, output   as RNN, the output's features being proj_size, if there is one
        hx              (h, c): (layers * directions, N, proj_size or hidden_size) and (layers * directions, N, hidden_size)

    >>> output, (h, c) = LSTM(3, 5, 2)(empty(7, 2, 3))
    >>> tuple(output.shape), tuple(h.shape)
    ((7, 2, 5), (2, 2, 5))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden[0], self.get_expected_hidden_size(input, batch_sizes), "Expected hidden[0] size {}, got {}")
        self.check_hidden_size(hidden[1], self.get_expected_cell_size(input, batch_sizes), "Expected hidden[1] size {}, got {}")

    def _check_ranks(self, batched: bool, hx: Any) -> None:
        wanted = 3 if batched else 2
        if hx is not None and (hx[0].dim() != wanted or hx[1].dim() != wanted):
            kind = f"{'batched' if batched else 'unbatched'} {wanted}-D"
            raise RuntimeError(f"For {kind} input, hx and cx should also be {wanted}-D but got ({hx[0].dim()}-D, {hx[1].dim()}-D) tensors")

    def _zero_state(self, data: Tensor, batch_sizes: Tensor | None) -> Any:
        hidden = super()._zero_state(data, batch_sizes)
        shape = self.get_expected_cell_size(data, batch_sizes)
        return hidden, hidden if shape == tuple(hidden.shape) else zeros(shape, dtype=data.dtype, device=data.device)


# -- cells -----------------------------------------------------------------------------------------------------------------


class RNNCellBase(Module):
    """What the cells share: two weights, two biases, and one step for inputs (N, input_size) or (input_size,)."""

    __constants__ = ["bias", "hidden_size", "input_size"]
    weight_ih: Tensor
    weight_hh: Tensor
    states = 1

    def __init__(self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        rows = num_chunks * hidden_size
        self.weight_ih = Parameter(empty((rows, input_size), device=device, dtype=dtype))
        self.weight_hh = Parameter(empty((rows, hidden_size), device=device, dtype=dtype))
        if bias:
            self.bias_ih = Parameter(empty(rows, device=device, dtype=dtype))
            self.bias_hh = Parameter(empty(rows, device=device, dtype=dtype))
        else:
            self.register_parameter("bias_ih", None)
            self.register_parameter("bias_hh", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights, uniform in ±1/√hidden_size."""
        bound = 1 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self) -> str:
        shown = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            shown += f", bias={self.bias}"
        nonlinearity = getattr(self, "nonlinearity", "tanh")
        return shown if nonlinearity == "tanh" else f"{shown}, nonlinearity={nonlinearity}"

    def _step(self, operation: str, input: Tensor, hx: Any) -> Any:
        name = type(self).__name__
        if input.dim() not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead: features with or without a batch")
        several = self.states > 1
        for i, state in enumerate(hx if several and hx is not None else (hx,)):
            if state is not None and state.dim() not in (1, 2):
                which = f"hx[{i}]" if several else "hidden"
                raise ValueError(f"{name}: Expected {which} to be 1D or 2D, got {state.dim()}D instead: it is as the input is")
        batched = input.dim() == 2
        x = input if batched else input.unsqueeze(0)
        if hx is None:
            state = zeros((x.size(0), self.hidden_size), dtype=x.dtype, device=x.device)
            hx = (state,) * self.states if several else state
        elif not batched:
            hx = _each(tuple(hx) if several else hx, lambda s: s.unsqueeze(0))
        found = OPS[operation](x, hx, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        return found if batched else _each(found, lambda s: s.squeeze(0))


class RNNCell(RNNCellBase):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu of it. input (N, input_size), hx (N, hidden_size) -> (N, hidden_size)."""

    nonlinearity: str

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=1, device=device, dtype=dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        return self._step(f"rnn_{self.nonlinearity}_cell", input, hx)


class LSTMCell(RNNCellBase):
    """One step of an LSTM. input (N, input_size), hx = (h, c), each (N, hidden_size) -> (h', c')."""

    states = 2

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=4, device=device, dtype=dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        return self._step("lstm_cell", input, hx)


class GRUCell(RNNCellBase):
    """One step of a GRU. input (N, input_size), hx (N, hidden_size) -> (N, hidden_size)."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=3, device=device, dtype=dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._step("gru_cell", input, hx)
