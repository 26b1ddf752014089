"""Dropout: the masks of a seed are PyTorch's, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from layer_oracle import check_errors, check_function, check_layer, torch

import flambeau

LAYERS = [
    ("Dropout", (5, 7)), ("Dropout1d", (4, 3, 5)), ("Dropout1d", (4, 5)), ("Dropout2d", (4, 3, 2, 2)), ("Dropout2d", (4, 3, 2)),
    ("Dropout3d", (2, 3, 2, 2, 2)), ("Dropout3d", (3, 2, 2, 2)), ("AlphaDropout", (5, 7)), ("FeatureAlphaDropout", (4, 3, 2)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "shape"), LAYERS)
@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("inplace", [False, True])
def test_layer(name, shape, p, inplace):
    """Repr, masks and gradients are PyTorch's over two calls."""
    check_layer(name, p, inplace, on=(shape,), calls=2)


@pytest.mark.parametrize(("name", "shape"), LAYERS)
def test_evaluation(name, shape):
    """In evaluation nothing is dropped, and nothing is drawn."""
    check_layer(name, 0.5, on=(shape,), train=False)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
def test_dtypes(dtype):
    """Masks do not depend on the dtype."""
    check_layer("Dropout", 0.4, on=((33, 5),), dtype=dtype)


def test_large_and_strided():
    """More elements than are drawn at once, and memory in another order: the same bits."""
    for make in (
        lambda t: t.ones(300, 700),
        lambda t: t.ones(300, 700).t(),
        lambda t: t.ones(4, 6)[:, ::2],
        lambda t: t.ones(3, 1).expand(3, 5),
    ):
        found = []
        for package in (flambeau, torch):
            package.manual_seed(3)
            found.append(package.nn.functional.dropout(make(package), 0.3).numpy())
        np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("name", ["dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"])
def test_functions_of_torch(name):
    """torch.dropout and its relatives, and their in-place forms."""
    check_function(lambda t, x: getattr(t, name)(x, 0.4, True), (4, 3, 5))
    check_function(lambda t, x: getattr(t, name + "_")(x * 1, 0.4, True), (4, 3, 5))


def test_zero_times_infinity():
    """What is dropped is multiplied by zero, not replaced by it."""
    check_function(lambda t, x: t.nn.functional.dropout(x * float("inf"), 0.5), (20,))


def test_refusals():
    """Probabilities outside of [0, 1] are refused."""
    check_errors(lambda t: t.nn.Dropout(1.5))
    check_errors(lambda t, x: t.nn.functional.dropout(x, -0.1), (3,))
    check_errors(lambda t, x: t.dropout(x, 1.1, True), (3,))
    check_errors(lambda t, x: t.nn.functional.dropout1d(x), (3,))


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool"])
@pytest.mark.parametrize("p", [0.0, 0.5, 1.0])
def test_integers_cannot_be_scaled(dtype, p):
    """RuntimeError, unless there is nothing to scale."""
    found = []
    for package in (flambeau, torch):
        x = package.ones(2, 3, dtype=getattr(package, dtype))
        for function in (package.nn.functional.dropout, package.nn.functional.dropout1d):
            for inplace in (False, True):
                try:
                    found.append(function(x.clone(), p, inplace=inplace).tolist())
                except RuntimeError as problem:
                    found.append(type(problem))
    assert found[:4] == found[4:]


@pytest.mark.parametrize("function", ["dropout", "dropout2d", "alpha_dropout"])
def test_a_probability_that_is_a_tensor(function):
    """A rate that is scheduled or learned as a 0-d tensor drops the same elements as the number."""
    found = []
    for package in (flambeau, torch):
        for p in (0.4, package.tensor(0.4), package.tensor(0.4, dtype=package.float64), np.float32(0.4)):
            package.manual_seed(0)
            found.append(getattr(package.nn.functional, function)(package.ones(2, 5, 3, 1), p, True).tolist())
        found.append(package.rand(1).tolist())
    for ours, theirs in zip(found[:5], found[5:], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
