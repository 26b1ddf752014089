"""torch.masked of sparse tensors: the places and values of results are PyTorch's, and so is what is refused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state", "ignore:Sparse invariant checks")
DENSE = [[0.0, 2, 0, -1], [0, 0, 0, 0], [3, 0, -4, 0]]
MASK = [[1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 0, 0]]


def stored(x) -> tuple:
    """Everything about a result."""
    layout = str(x.layout)
    if layout == "torch.strided":
        return layout, x.tolist()
    if layout == "torch.sparse_coo":
        x = x.coalesce()
        return layout, tuple(x.shape), x.indices().tolist(), x.values().tolist()
    return layout, tuple(x.shape), x.crow_indices().tolist(), x.col_indices().tolist(), x.values().tolist()


@pytest.mark.parametrize("name", ["sum", "prod", "amax", "amin", "mean", "norm", "softmax", "var"])
@pytest.mark.parametrize("form", ["to_sparse", "to_sparse_csr", "to_dense"])
@pytest.mark.parametrize("mask_form", [None, "to_sparse", "to_sparse_csr", "to_dense"], ids=str)
def test_masked_reductions(name, form, mask_form):
    """Over every dimension, with masks of every layout and without: results store what PyTorch's store, or both refuse."""
    for dim, keepdim in itertools.product((None, 0, 1, (0, 1)), (False, True)):
        if name == "softmax" and (keepdim or not isinstance(dim, int)):
            continue

        def told(t, dim=dim, keepdim=keepdim):
            x, mask = t.tensor(DENSE), t.tensor(MASK, dtype=t.bool)
            options = {"mask": None if mask_form is None else getattr(mask, mask_form)()} | (
                {} if name == "softmax" else {"keepdim": keepdim}
            )
            try:
                return stored(getattr(t.masked, name)(getattr(x, form)(), dim=dim, **options))
            except (ValueError, RuntimeError, AssertionError):
                return "refused"

        mine, theirs = told(flambeau), told(torch)
        if mine != theirs:
            assert mine != "refused" and theirs != "refused"
            assert mine[:-1] == theirs[:-1] and np.allclose(mine[-1], theirs[-1], equal_nan=True)


def test_gradient_of_a_masked_sum():
    """The gradient of a masked sum (PyTorch has none) is one at the places that count, and dtypes are those of sums."""
    x = flambeau.tensor(DENSE, requires_grad=True)
    flambeau.masked.sum(x.to_sparse(), 0, mask=flambeau.tensor(MASK).bool()).to_dense().sum().backward()
    assert x.grad.to_dense().tolist() == MASK
    whole = flambeau.tensor([[1, 0], [2, 3]], dtype=flambeau.int8).to_sparse()
    assert (
        flambeau.masked.sum(whole, 0).dtype is flambeau.int64
        and flambeau.masked.sum(whole, 0, dtype=flambeau.float32).dtype is flambeau.float32
    )
    nothing = flambeau.zeros(2, 2, dtype=flambeau.bool)
    assert flambeau.masked.amax(whole.float(), mask=nothing).to_dense().item() == -float("inf")
