"""Activations: functions and layers against PyTorch."""

from __future__ import annotations

import pytest
from layer_oracle import check_errors, check_function, check_layer, torch

import flambeau

PLAIN = "Hardsigmoid Hardswish LogSigmoid Mish ReLU ReLU6 SELU SiLU Sigmoid Softsign Tanh Tanhshrink".split()
LAYERS = [(name, (), {}) for name in PLAIN] + [
    ("CELU", (0.7,), {}), ("ELU", (0.7,), {}), ("GELU", (), {}), ("GELU", ("tanh",), {}), ("GLU", (0,), {}), ("Hardshrink", (0.3,), {}),
    ("Hardtanh", (-0.5, 0.7), {}), ("LeakyReLU", (0.2,), {}), ("LogSoftmax", (1,), {}), ("PReLU", (), {}), ("PReLU", (3,), {}),
    ("RReLU", (), {}), ("RReLU", (0.2, 0.6), {}), ("Softmax", (1,), {}), ("Softmax", (), {}), ("Softmax2d", (), {}), ("Softmin", (-1,), {}),
    ("Softplus", (2.0, 1.0), {}), ("Softshrink", (0.3,), {}), ("Threshold", (0.1, 20.0), {}),
]  # fmt: skip
IN_PLACE = "CELU ELU Hardsigmoid Hardswish Hardtanh LeakyReLU Mish RReLU ReLU ReLU6 SELU SiLU".split()


@pytest.mark.parametrize(("name", "args", "options"), LAYERS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_layer(name, args, options, dtype):
    """Repr, state, output and gradients are PyTorch's."""
    check_layer(name, *args, on=((2, 3, 5),), dtype=dtype, **options)


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place(name):
    """inplace=True gives the same numbers and gradients, and is shown as PyTorch shows it."""
    check_layer(name, inplace=True, on=((2, 3, 5),))


def test_rrelu_in_evaluation():
    """Outside of training rrelu has one slope, the middle."""
    check_layer("RReLU", on=((2, 3, 5),), train=False)


@pytest.mark.parametrize("name", ["hardtanh_", "elu_", "relu_", "selu_", "celu_", "leaky_relu_", "rrelu_"])
def test_underscored(name):
    """F.<name>_ writes over its input."""
    check_function(lambda t, x: getattr(t.nn.functional, name)(x * 1), (3, 4))


@pytest.mark.parametrize("hard", [False, True])
def test_gumbel_softmax(hard):
    """The sample of a seed is PyTorch's, and so is its gradient."""
    check_function(lambda t, x: t.nn.functional.gumbel_softmax(x, tau=0.7, hard=hard), (4, 6))


@pytest.mark.parametrize("name", ["normalize", "softmin"])
def test_along_dimension(name):
    """Functions of vectors along a dimension, with second derivatives."""
    check_function(lambda t, x: getattr(t.nn.functional, name)(x, dim=1), (3, 4, 2), second=True)


def test_cosine_similarity():
    """Broadcast shapes, second derivatives, and a vector of zeros."""
    check_function(lambda t, x, y: t.nn.functional.cosine_similarity(x, y, dim=1), (3, 4, 2), (1, 4, 2), second=True)
    check_function(lambda t, x: t.nn.functional.cosine_similarity(x * 0 + 1e-12, x, dim=0), (5,))
    check_layer("CosineSimilarity", 1, on=((3, 4), (3, 4)))
    check_layer("PairwiseDistance", 1.5, keepdim=True, on=((3, 4), (3, 4)))


def test_refusals():
    """What PyTorch refuses is refused with its type of exception."""
    check_errors(lambda t: t.nn.Hardtanh(1.0, 0.5))
    check_errors(lambda t, x: t.nn.Softmax2d()(x), (2, 3))
    check_errors(lambda t, x: t.nn.functional.rrelu(x, 0.5, 0.1), (2, 3))
    check_errors(lambda t, x: t.nn.functional.glu(x), (2, 3))


def test_every_activation_is_there():
    """nn has all activations of torch.nn but attention."""
    assert {n for n in torch.nn.modules.activation.__all__ if n != "MultiheadAttention"} <= set(dir(flambeau.nn))


def test_a_threshold_may_be_set_twice():
    """threshold_ of an expanded tensor is refused, though doing it twice changes nothing."""
    x = flambeau.tensor([[0.0, 1.0]]).expand(3, 2)
    flambeau.nn.functional.threshold(x, 0.5, 0.25, inplace=True)
    assert x.tolist() == [[0.25, 1.0]] * 3
