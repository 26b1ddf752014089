"""How many floating-point operations an operation takes: a multiplication and an addition are two. None where nobody counts."""

from __future__ import annotations

from math import prod
from typing import Any

Shapes = list[Any]  # shapes of the arguments, None for what is no tensor


def count(name: str, shapes: Shapes, options: dict[str, Any]) -> int | None:
    """The number for an operation of this name (without "aten::"), as PyTorch's profiler has it; linear and matmul besides."""
    try:
        if name in ("mm", "bmm", "matmul", "mv", "dot"):
            return 2 * prod(shapes[0]) * (shapes[1][-1] if len(shapes[1]) > 1 else 1)
        if name in ("addmm", "baddbmm", "addbmm"):
            return 2 * prod(shapes[1]) * shapes[2][-1]
        if name == "linear":
            return 2 * prod(shapes[0]) * shapes[1][0]
        if name in ("conv1d", "conv2d", "conv3d"):
            return _convolution(shapes[0], shapes[1], options)
        if name.startswith("conv_transpose"):
            return 2 * prod(shapes[0]) * prod(shapes[1][1:])
        if name == "recurrence":  # the part of an LSTM or GRU that goes step by step: every token times the hidden weights
            return 2 * shapes[0][0] * prod(shapes[1])
        if name == "scaled_dot_product_attention":
            *batch, queries, width = shapes[0]
            return 2 * prod(batch) * queries * shapes[1][-2] * (width + shapes[2][-1])
        if name in ("add", "mul", "sub", "div"):
            return prod(shapes[0]) if shapes[0] is not None else prod(shapes[1])
    except (TypeError, IndexError):  # called in a way nobody foresaw: no number is better than a wrong one
        return None
    return None


def _convolution(input: tuple, weight: tuple, options: dict[str, Any]) -> int | None:
    """2 * N * C_out * output positions * C_in / groups * kernel positions."""
    spatial, kernel = input[-(len(weight) - 2) :], weight[2:]
    batch = input[0] if len(input) == len(weight) else 1
    if options.get("padding") == "same":
        return 2 * batch * weight[0] * prod(spatial) * weight[1] * prod(kernel)
    stride, padding, dilation = (_each(options.get(n), len(kernel), d) for n, d in (("stride", 1), ("padding", 0), ("dilation", 1)))
    places = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in zip(spatial, kernel, stride, padding, dilation, strict=True)]
    return 2 * batch * weight[0] * prod(places) * weight[1] * prod(kernel)


def _each(value: Any, n: int, default: int) -> list[int]:
    if value is None or value == "valid":
        return [default] * n
    return [value] * n if isinstance(value, int) else list(value) * (n if len(value) == 1 else 1)
