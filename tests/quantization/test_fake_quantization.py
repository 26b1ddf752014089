"""fake_quantize_*: rounded to what integers can say, with a gradient that passes where they could say it."""

from __future__ import annotations

import pytest
from pairs import refusals, same

VALUES = [-3.0, -1.26, -1.2, 0.0, 0.05, 0.15, 1.2, 1.3, 5.0, float("nan"), float("inf"), -float("inf")]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_values_and_gradient_for_the_whole_tensor(dtype):
    """A value or its gradient is not PyTorch's, to the bit."""

    def program(t):
        x = t.tensor(VALUES, dtype=getattr(t, dtype), requires_grad=True)
        y = t.fake_quantize_per_tensor_affine(x, 0.1, 2, -10, 10)
        y.sum().backward()
        many = t.fake_quantize_per_tensor_affine(t.randn(1000) * 3, t.tensor(0.037), t.tensor(7, dtype=t.int32), -128, 127)
        return y.float(), x.grad.float(), many

    same(program)


@pytest.mark.parametrize("zeros", [[-1, 0, 4], [0.5, -0.25, 3.0]])
def test_values_and_gradient_by_channel(zeros):
    """A channel is rounded, or its gradient stopped, otherwise than in PyTorch."""

    def program(t):
        x = (t.randn(5, 3) * 2).requires_grad_()
        zero = t.tensor(zeros)
        y = t.fake_quantize_per_channel_affine(x, t.tensor([0.1, 0.02, 0.3]), zero if zero.is_floating_point() else zero.int(), 1, -10, 10)
        y.mul(t.randn(5, 3)).sum().backward()
        return y, x.grad

    same(program)


REFUSED = {
    "integers": lambda t: t.fake_quantize_per_tensor_affine(t.arange(3), 0.1, 0, 0, 255),
    "zero point": lambda t: t.fake_quantize_per_tensor_affine(t.ones(3), 0.1, 20, -10, 10),
    "bounds": lambda t: t.fake_quantize_per_tensor_affine(t.ones(3), 0.1, 0, 10, -10),
    "int64 zero points": lambda t: t.fake_quantize_per_channel_affine(t.ones(3), t.ones(3), t.arange(3), 0, -10, 10),
    "channels": lambda t: t.fake_quantize_per_channel_affine(t.ones(3), t.ones(2), t.arange(2).int(), 0, -10, 10),
    "axis": lambda t: t.fake_quantize_per_channel_affine(t.ones(3), t.ones(3), t.arange(3).int(), 1, -10, 10),
    "zero points": lambda t: t.fake_quantize_per_channel_affine(t.ones(3), t.ones(3), t.arange(3).int(), 0, -10, 1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_are_of_pytorchs_types(name):
    """Arguments that PyTorch refuses are taken, or refused with another type of exception."""
    theirs, ours = refusals(REFUSED[name])
    assert theirs is not None and ours is theirs
