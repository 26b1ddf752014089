"""Layers that map features to features: Linear, Bilinear, and Identity, which does nothing."""

from __future__ import annotations

import math
from typing import Any

from flambeau.nn import functional as F
from flambeau.nn import init
from flambeau.nn.modules.lazy import LazyModuleMixin
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import UninitializedParameter
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import empty
from flambeau.tensor.making.parameter import Parameter

__all__ = ["Bilinear", "Identity", "LazyLinear", "Linear"]


class Identity(Module):
    """Gives back what it is given; takes any arguments, so that it can stand for any layer.

    Shape: input (*) -> output (*)
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


class Linear(Module):
    """y = x Aᵀ + b.

    Shape:
        input   (*, in_features)
        output  (*, out_features)
        weight  (out_features, in_features), starts uniform in ±1/√in_features
        bias    (out_features,), the same

    >>> tuple(Linear(3, 5)(empty(2, 3)).shape)
    (2, 5)
    """

    __constants__ = ["in_features", "out_features"]
    in_features: int
    out_features: int
    weight: Tensor

    def __init__(self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(empty((out_features, in_features), device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(empty(out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights. Kaiming's with a = √5, which is the uniform distribution of the docstring."""
        init.kaiming_uniform_(self.weight, a=5**0.5)
        _draw(self.bias, self.weight.shape[1])

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


def _draw(parameter: Tensor | None, inputs: int) -> None:
    """Uniform in ±1/√inputs, in place."""
    if parameter is not None:
        bound = 1 / math.sqrt(inputs) if inputs else 0
        init.uniform_(parameter, -bound, bound)


class NonDynamicallyQuantizableLinear(Linear):
    """The Linear inside MultiheadAttention, kept under its own name because checkpoints have it."""


class Bilinear(Module):
    """y_o = x₁ᵀ A_o x₂ + b_o.

    Shape:
        input1  (*, in1_features), input2 (*, in2_features), the same *
        output  (*, out_features)
        weight  (out_features, in1_features, in2_features), starts uniform in ±1/√in1_features
    """

    __constants__ = ["in1_features", "in2_features", "out_features"]

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        if in1_features <= 0:
            raise ValueError(f"in1_features must be > 0, but got {in1_features}")
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        self.weight = Parameter(empty((out_features, in1_features, in2_features), device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(empty(out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights, uniform in ±1/√in1_features."""
        for parameter in (self.weight, self.bias):
            _draw(parameter, self.weight.shape[1])

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        sizes = f"in1_features={self.in1_features}, in2_features={self.in2_features}, out_features={self.out_features}"
        return f"{sizes}, bias={self.bias is not None}"


class LazyLinear(LazyModuleMixin, Linear):
    """A Linear that takes `in_features` from its first input, and is a Linear from then on."""

    cls_to_become = Linear
    weight: UninitializedParameter
    bias: UninitializedParameter

    def __init__(self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(0, 0, False)  # no parameters worth drawing numbers for
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_features = out_features
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.in_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        found = input.shape[-1]
        if self.has_uninitialized_params():
            self.in_features = found
            for parameter, *columns in ((self.weight, found), (self.bias,)):
                if parameter is not None:
                    parameter.materialize((self.out_features, *columns))
            self.reset_parameters()
        if self.in_features == 0:
            known = self.weight.shape[-1]
            assert found == known, f"The in_features inferred from input is {found}, and the weight, of an earlier input, has {known}"
            self.in_features = found
