"""Weights of quantized layers, packed for the products of kernels/templates/quantized.py.

`linear_prepack` packs the weight and bias of a layer, `cell_params` those of one direction of a recurrent layer. Both give a ScriptObject,
which is what PyTorch has there, and what its files say: a checkpoint of either framework is read by the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau import dtypes
from flambeau.eager import array_ops
from flambeau.kernels.templates import quantized
from flambeau.ops import quantized as layers
from flambeau.ops.linear import linear
from flambeau.tensor import Tensor, wrap
from flambeau.tensor.quantized.quantized_tensor import QuantizedTensor, Quantizer, of_integers
from flambeau.tensor.quantized.script_object import CELL, LINEAR, ScriptObject, script_object

array_ops._OPTIONS.add(quantized.Packed)  # what operations take without asking whether it is a tensor in disguise


def linear_prepack(weight: Tensor, bias: Tensor | None) -> ScriptObject:
    """Pack a weight (out, in), quantized to qint8, and a bias (out,)."""
    if not isinstance(weight, QuantizedTensor) or weight.dtype is not dtypes.qint8:
        raise RuntimeError(f"linear_prepack: the weight must be quantized to torch.qint8, found {weight.dtype}")
    return script_object(LINEAR, weight, bias)


def linear_prepack_fp16(weight: Tensor, bias: Tensor | None) -> ScriptObject:
    """Keep a weight (out, in) as float16, half the size, and compute in float32."""
    if weight.dtype is not dtypes.float32:
        raise RuntimeError(f"linear_prepack_fp16: the weight must be float32, found {weight.dtype}")
    return script_object(LINEAR, weight, bias)


def linear_unpack(packed: ScriptObject) -> tuple[Tensor, Tensor | None]:
    """(weight, bias)."""
    return packed.content.state()


def cell_params(packed_ih: ScriptObject, packed_hh: ScriptObject, reduce_range: bool) -> ScriptObject:
    """The weights of one direction of a recurrent layer."""
    biases = [p.content.bias for p in (packed_ih, packed_hh)]
    if not packed_ih.content.integers:
        return script_object(CELL, "quantized_fp16", [], [], [], [packed_ih, packed_hh])
    return script_object(CELL, "quantized_dynamic", biases, [], [int(reduce_range)], [packed_ih, packed_hh])


class PackedLinear:
    """y = x Wᵀ + b with weights of 8-bit integers or, computed in float32, of float16."""

    def __init__(self, weight: Tensor, bias: Tensor | None):
        if weight.dim() != 2:
            raise RuntimeError(f"the weight of a linear layer should have 2 dimensions, found {weight.dim()}")
        self.bias = bias
        self.integers = isinstance(weight, QuantizedTensor)
        if self.integers:
            self.meaning: Quantizer = weight._quantizer
            if self.meaning.axis not in (None, 0):
                raise RuntimeError(f"the channels of a linear layer's weight are its rows (axis 0), found axis {self.meaning.axis}")
            scale, zero = (x.reshape(-1) for x in self.meaning.along(2))
            values = None if bias is None else bias.detach()._array
            self.packed = quantized.pack(weight._array, scale, zero, values)
        else:
            if not weight.is_floating_point() or weight.element_size() < 2:
                raise RuntimeError(f"the weight of a linear layer should be quantized, or floats of 16 bits and more: found {weight.dtype}")
            limit = float(np.finfo(np.float16).max)
            self.half = weight.detach().clamp(-limit, limit).to(dtypes.float16)

    def state(self) -> tuple[Tensor, Tensor | None]:
        """(weight, bias), as they were given."""
        if not self.integers:
            return self.half.to(dtypes.float32), self.bias
        return of_integers(wrap(quantized.unpack(self.packed)), self.meaning), self.bias

    def scheme(self) -> Any:
        """The qscheme of the weight, without unpacking it."""
        return self.meaning.scheme

    def __call__(self, x: Tensor, reduce_range: bool) -> Tensor:
        if not x.is_cpu:
            raise NotImplementedError(f"quantized layers run on the CPU, found an input on {x.device}. Try x.cpu()")
        if x.dtype is not dtypes.float32:
            raise RuntimeError(f"expected scalar type Float but found {x.dtype}: a quantized layer takes float32. Try x.float()")
        if not self.integers:
            return linear(x, self.half.to(dtypes.float32), self.bias)
        if x.dim() < 2:
            found = f"{tuple(x.shape)}. Try x.unsqueeze(0)"
            raise RuntimeError(f"input must have 2 dimensions or more, found shape {found}")
        if x.shape[-1] != self.packed.shape[1]:
            raise RuntimeError(
                f"quantized linear: the last dimension of input is {x.shape[-1]}, but the weight takes {self.packed.shape[1]}"
            )
        return layers.linear(x, self.packed, 127 if reduce_range else 255)


class CellParams:
    """The two products of a recurrent layer in one direction. The arguments are those of PyTorch's files."""

    def __init__(self, kind: str, tensors: list, doubles: list, longs: list, packed: list):
        if kind not in ("quantized_dynamic", "quantized_fp16") or len(packed) != 2 or not all(isinstance(p, ScriptObject) for p in packed):
            raise RuntimeError(
                f"a quantized recurrent layer has the packed weights of inputs and states; found {kind!r} with {[type(p) for p in packed[:3]]}"
            )
        self.kind, self.tensors, self.longs, self.packed = kind, tensors, longs, packed
        self.inputs, self.states = (p.content for p in packed)
        self.most = 0 if kind == "quantized_fp16" else 127 if longs and longs[0] else 255

    def state(self) -> tuple:
        """What it was made of."""
        return self.kind, self.tensors, [], self.longs, self.packed

    @property
    def packed_states(self) -> quantized.Packed:
        """The weights that states are multiplied with."""
        return self.states.packed

    def of_inputs(self, x: Tensor) -> Tensor:
        """W_ih x + b_ih."""
        return self.inputs(x, self.most == 127)

    def of_states(self, h: Tensor) -> Tensor:
        """W_hh h + b_hh."""
        return self.states(h, self.most == 127)
