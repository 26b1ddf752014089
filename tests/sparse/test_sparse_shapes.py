"""Tensors of any number of sparse and dense dimensions, any dtype, with and without elements, drawn at random."""

from __future__ import annotations

import numpy as np
import pytest
from sparse_oracle import assert_same, run

import flambeau

torch = pytest.importorskip("torch")

PROGRAMS = {
    "coalesce": lambda t, x: x.coalesce(),
    "to_dense": lambda t, x: x.to_dense(),
    "sum of the last": lambda t, x: t.sparse.sum(x, -1),
    "sum of the first": lambda t, x: t.sparse.sum(x, 0),
    "sum": lambda t, x: x.sum(),
    "any": lambda t, x: x.any(),
    "norm": lambda t, x: x.norm(),
    "add": lambda t, x: x + x * 2,
    "add in place": lambda t, x: x.clone().add_(x),
    "product": lambda t, x: x.coalesce() * x.coalesce(),
    "sparse_mask": lambda t, x: x.to_dense().sparse_mask(x.coalesce()),
    "transpose": lambda t, x: x.transpose(0, x.sparse_dim() - 1),
    "select": lambda t, x: x.select(0, -1),
    "index_select": lambda t, x: x.index_select(0, t.tensor([0, 0])),
    "cat": lambda t, x: t.cat([x, x], x.sparse_dim() - 1),
    "unsqueeze": lambda t, x: x.unsqueeze(0),
    "narrow": lambda t, x: x.narrow_copy(0, 0, 1),
    "neg": lambda t, x: -x,
    "abs": lambda t, x: x.abs(),
    "square": lambda t, x: x.square(),
    "softmax": lambda t, x: t.sparse.softmax(x, 0),
    "last softmax": lambda t, x: t.sparse.log_softmax(x, -1),
    "double": lambda t, x: x.double(),
    "quotient": lambda t, x: x / 3,
    "zero": lambda t, x: x.clone().zero_(),
    "dense plus": lambda t, x: x.to_dense().add(x, alpha=2),
    "times dense": lambda t, x: x * (x.to_dense() + 1),
    "to_sparse": lambda t, x: x.to_dense().to_sparse(x.sparse_dim()),
}


def draw(rng):
    """(shape, indices, values) of 1 to 3 sparse and 0 to 2 dense dimensions."""
    sparse_dim, dense_dim, nnz = rng.randint(1, 4), rng.randint(0, 3), rng.choice([0, 1, 2, 7])
    shape = tuple(rng.randint(1, 5, sparse_dim + dense_dim).tolist())
    indices = np.array([rng.randint(0, n, nnz) for n in shape[:sparse_dim]]).reshape(sparse_dim, nnz).astype(np.int64)
    values = (rng.randn(nnz, *shape[sparse_dim:]) * 3).astype(rng.choice(["f4", "f8", "i8", "c8", "i4"]))
    return shape, indices, values


@pytest.mark.parametrize("seed", range(30))
def test_any_shape(seed):
    """Whatever PyTorch can do with a tensor gives the same here: layout, shape, dtype and elements."""
    shape, indices, values = draw(np.random.RandomState(seed))
    make = lambda t: t.sparse_coo_tensor(t.from_numpy(indices), t.from_numpy(values), shape)  # noqa: E731
    for name, program in PROGRAMS.items():
        try:
            theirs = run(lambda t: program(t, make(t)), torch)  # noqa: B023
        except (RuntimeError, NotImplementedError, IndexError):
            continue  # what it refuses is compared elsewhere
        try:
            assert_same(program(flambeau, make(flambeau)), theirs, tolerance=1e-4)
        except Exception as problem:
            raise AssertionError(f"{name} of shape {shape}, {indices.shape} {values.dtype}: {problem}") from problem
