"""Tables of vectors: Embedding and EmbeddingBag against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from layer_oracle import assert_near, check_errors, check_function, check_layer, torch

import flambeau

TOKENS = np.array([[1, 2, 4, 5], [4, 3, 2, 9]])


@pytest.mark.parametrize(
    "options",
    [{}, {"padding_idx": 2}, {"padding_idx": -1}, {"max_norm": 1.0}, {"max_norm": 0.5, "norm_type": 1.0}, {"scale_grad_by_freq": True}],
)
def test_embedding(options):
    """Initial rows, repr, output and gradients are PyTorch's; max_norm writes into the table."""
    check_layer("Embedding", 10, 3, on=(TOKENS,), calls=2, **options)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("options", [{}, {"padding_idx": 4}, {"max_norm": 1.0}, {"include_last_offset": True}])
def test_embedding_bag(mode, options):
    """Bags of equal size, and bags given by offsets, one of them empty."""
    check_layer("EmbeddingBag", 10, 3, mode=mode, on=(TOKENS,), **options)
    offsets = np.array([0, 3, 3, 8] if options.get("include_last_offset") else [0, 3, 3])
    check_layer("EmbeddingBag", 10, 3, mode=mode, on=(TOKENS.reshape(-1), offsets), **options)


def test_per_sample_weights():
    """Weights of a sum, with their gradient."""
    check_layer("EmbeddingBag", 10, 3, mode="sum", on=(TOKENS, None, TOKENS / 7.0))
    check_layer("EmbeddingBag", 10, 3, mode="sum", on=(TOKENS.reshape(-1), np.array([0, 5]), TOKENS.reshape(-1) / 7.0))


def test_function_of_torch():
    """torch.embedding_bag gives bags, sizes and the places of maxima, too."""
    table, flat, offsets = np.random.default_rng(0).standard_normal((10, 3)), TOKENS.reshape(-1), np.array([0, 3, 6])
    for mode in (0, 1, 2):
        found = []
        for package in (flambeau, torch):
            found.append(package.embedding_bag(package.tensor(table), package.tensor(flat), package.tensor(offsets), mode=mode))
        assert_near(found[0][0], found[1][0], "result")
        assert_near(found[0][1], found[1][1], "bag of each index")


def test_the_first_order_of_arguments():
    """embedding_bag(weight, input), as it was once, is still understood, with a warning."""
    for package in (flambeau, torch):
        table, flat = package.tensor([[1.0, 2.0], [3.0, 4.0]]), package.tensor([[0, 1]])
        with pytest.warns(UserWarning, match="Argument order of nn.functional.embedding_bag was changed"):
            assert package.nn.functional.embedding_bag(table, flat, mode="sum").tolist() == [[4, 6]]


def test_from_pretrained():
    """A table that does not learn, unless it is thawed."""
    for name in ("Embedding", "EmbeddingBag"):
        for freeze in (True, False):
            made = [getattr(p.nn, name).from_pretrained(p.tensor([[1.0, 2.0], [3.0, 4.0]]), freeze=freeze) for p in (flambeau, torch)]
            assert repr(made[0]) == repr(made[1])
            assert made[0].weight.requires_grad is made[1].weight.requires_grad is not freeze


def test_second_derivative():
    """The gradient of a gradient reaches the rows that were read."""
    check_function(lambda t, w: t.nn.functional.embedding(t.tensor([[0, 2], [2, 1]]), w), (4, 3), second=True)


def test_refusals():
    """What PyTorch refuses is refused with its type of exception."""
    check_errors(lambda t: t.nn.Embedding(3, 2, padding_idx=3))
    check_errors(lambda t, i: t.nn.Embedding(3, 2)(i), np.array([4]))
    check_errors(lambda t, i: t.nn.EmbeddingBag(3, 2)(i), np.array([1, 2]))
    check_errors(lambda t, i, o: t.nn.EmbeddingBag(3, 2)(i, o), np.array([1, 2]), np.array([1, 2]))
    check_errors(lambda t, i, w: t.nn.EmbeddingBag(3, 2, mode="mean")(i, None, w), np.array([[1, 2]]), np.array([[1.0, 2.0]]))
