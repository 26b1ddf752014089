"""Activations: values, derivatives at kinks and far away, in-place flags, errors."""

from __future__ import annotations

import pytest
from reduction_oracle import INF, LAYOUTS, NAN, REALS, assert_same, check, check_raises, functions, numbers, ours, torch

import flambeau

F = "nn.functional."
KINKS = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 3.0, -3.0, 6.0, 2.0, -2.0, 20.0, 25.0, -20.0, 100.0, -100.0, NAN]
ONE_ARGUMENT = (
    "relu relu6 leaky_relu elu selu celu gelu silu mish softplus logsigmoid tanhshrink softsign hardtanh hardsigmoid hardswish hardshrink "
    "softshrink sigmoid tanh"
).split()
SIXTH = {"hardsigmoid": 1e-7}  # PyTorch's 1/6 in the derivative is a float32
WITH_FLAG = "relu relu6 leaky_relu elu selu celu silu mish hardtanh hardsigmoid hardswish".split()
OPTIONS = [
    ("leaky_relu", {"negative_slope": 0.3}), ("leaky_relu", {"negative_slope": -0.2}), ("elu", {"alpha": 0.5}), ("celu", {"alpha": 2.0}),
    ("celu", {"alpha": -0.5}), ("gelu", {"approximate": "tanh"}), ("softplus", {"beta": 2.0}), ("softplus", {"beta": 0.5, "threshold": 1.0}),
    ("hardtanh", {"min_val": -0.5, "max_val": 3.0}), ("hardshrink", {"lambd": 1.0}), ("softshrink", {"lambd": 2.0}),
    ("softshrink", {"lambd": 0.0}), ("threshold", {"threshold": 0.5, "value": -7.0}), ("glu", {"dim": 0}), ("glu", {"dim": -1}),
]  # fmt: skip


@pytest.mark.parametrize("name", ONE_ARGUMENT)
@pytest.mark.parametrize("dtype", REALS)
def test_values_and_derivatives(name, dtype):
    """On ordinary numbers, and where the derivative jumps."""
    check(F + name, numbers(3, 4, dtype=dtype), rtol=SIXTH.get(name) if dtype is torch.float64 else None)
    if dtype.itemsize > 2:
        check(F + name, torch.tensor(KINKS, dtype=dtype), rtol=1e-5 if dtype is torch.float32 else SIXTH.get(name, 1e-9))


@pytest.mark.parametrize("name", ONE_ARGUMENT)
def test_layouts(name):
    """Any strides, no elements, no dimensions."""
    for layout in LAYOUTS.values():
        check(F + name, layout(numbers(3, 4)), rtol=SIXTH.get(name))
    check(F + name, numbers(0, 3))
    check(F + name, torch.tensor(0.3))


@pytest.mark.parametrize("name", "gelu silu mish softplus logsigmoid tanhshrink softsign elu selu celu sigmoid tanh".split())
def test_second_derivatives(name):
    """The smooth ones are differentiated twice."""
    check(F + name, numbers(3, 4), second=True)


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_options(name, options):
    """Slopes, scales, thresholds: in the value and in the derivative."""
    check(F + name, numbers(4, 6), **options)
    if name != "glu":
        check(F + name, torch.tensor(KINKS, dtype=torch.float64), **options)


@pytest.mark.parametrize("name", WITH_FLAG)
def test_inplace_flag(name):
    """inplace=True writes over the input, which keeps the gradient."""
    theirs, mine = functions(F + name)
    x = numbers(3, 4).requires_grad_()
    y = ours(x.detach().clone()).requires_grad_()
    z, w = x * 1, y * 1
    expected, found = theirs(z, inplace=True), mine(w, inplace=True)
    assert found is w
    assert_same(found, expected, name)
    expected.square().sum().backward()
    (found * found).sum().backward()
    assert_same(y.grad, x.grad, f"gradient of {name} in place", SIXTH.get(name))


def test_functions_that_write():
    """F.relu_ and the others with an underscore."""
    for name in ("relu_", "elu_", "selu_", "celu_", "leaky_relu_", "hardtanh_"):
        theirs, mine = functions(F + name)
        x = numbers(5)
        y = ours(x.clone())
        assert mine(y) is y
        assert_same(y, theirs(x.clone()), name)
    y = flambeau.tensor([-1.0, 2.0])
    assert flambeau.relu_(y) is y and flambeau.threshold_(y, 1, 5).tolist() == [5.0, 2.0]
    assert flambeau.selu(y).shape == flambeau.celu(y).shape == y.shape


def test_prelu():
    """One slope for all, or one for each channel; its gradient is summed over everything else."""
    for shape, count in (((), 1), ((5,), 1), ((2, 3), 3), ((2, 3, 4, 5), 3), ((2, 3, 4), 1)):
        check("prelu", numbers(*shape), numbers(count, seed=1), second=True)
    check("prelu", numbers(2, 3), torch.tensor(0.25, dtype=torch.float64))
    check_raises("prelu", numbers(2, 3), numbers(2))
    check_raises("prelu", numbers(2, 3), numbers(3, 1))


def test_integers():
    """relu and its flat relatives take integers, the exponential ones do not."""
    for dtype in (torch.int64, torch.int32):
        for name in ("relu", "relu6", "hardtanh", "softsign", "tanhshrink"):
            check(F + name, numbers(6, dtype=dtype))
        check(F + "threshold", numbers(6, dtype=dtype), 1, 2)
        for name in ("gelu", "silu", "elu", "leaky_relu", "softplus", "hardswish"):
            check_raises(F + name, numbers(6, dtype=dtype))
    check(F + "relu6", numbers(6, dtype=torch.uint8))
    check_raises(F + "hardtanh", numbers(6, dtype=torch.uint8))


def test_refusals():
    """What makes no sense raises PyTorch's type."""
    x = numbers(3)
    check_raises(F + "hardtanh", x, 1.0, -1.0)
    check_raises(F + "softshrink", x, -1.0)
    check_raises(F + "celu", x, 0.0)
    check_raises(F + "gelu", x, approximate="erf")
    check_raises(F + "glu", x)
    check_raises(F + "relu", torch.tensor([True]))
    check_raises(F + "relu", "x")


def test_infinity():
    """Where PyTorch gives a number, so do we."""
    x = torch.tensor([INF, -INF], dtype=torch.float64)
    for name in "relu relu6 leaky_relu elu selu celu softplus logsigmoid hardtanh hardsigmoid hardshrink softshrink sigmoid tanh".split():
        check(F + name, x)
