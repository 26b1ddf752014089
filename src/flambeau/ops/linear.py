"""Affine maps of features: linear and bilinear, what the layers of the same names compute."""

from __future__ import annotations

import math

from flambeau.ops.declare import composite


@composite(name="nn.functional.linear", method=False, autocast="half")
def linear(input, weight, bias=None):
    """y = x Aᵀ + b. input (*, in), weight (out, in) or (in,), bias (out,) -> (*, out)."""
    if weight.ndim > 1 and bias is not None and input.ndim > 1:  # the leading dimensions are rows, too: product and sum are one operation
        if input.ndim == 2:
            return bias.addmm(input, weight.t())
        *lead, features = input.shape
        return bias.addmm(input.reshape(math.prod(lead), features), weight.t()).view(*lead, weight.shape[0])
    result = input.matmul(weight.t() if weight.ndim == 2 else weight)
    return result if bias is None else result + bias


@composite(name="nn.functional.bilinear", method=False, autocast="half")
def bilinear(input1, input2, weight, bias=None):
    """y_o = x₁ᵀ A_o x₂ + b_o. input1 (*, m), input2 (*, n), weight (out, m, n), bias (out,) -> (*, out)."""
    if input1.ndim != input2.ndim or input1.shape[:-1] != input2.shape[:-1]:
        found = f"{tuple(input1.shape)} and {tuple(input2.shape)}"
        raise RuntimeError(f"bilinear(): input batch dimensions do not match: got {found}")
    for name, found, expected in (("input1", input1, weight.shape[1]), ("input2", input2, weight.shape[2])):
        if found.shape[-1] != expected:
            raise RuntimeError(f"bilinear(): {name} size does not match weight size: got {found.shape[-1]} but expected {expected}")
    out, m, n = weight.shape
    rows1, rows2 = input1.reshape(-1, m), input2.reshape(-1, n)
    side = rows1.matmul(weight.permute(1, 0, 2).reshape(m, out * n))  # (B, out * n)
    result = side.view(-1, out, n).matmul(rows2.unsqueeze(-1)).squeeze(-1)
    result = result.reshape(*input1.shape[:-1], out)
    return result if bias is None else result + bias
