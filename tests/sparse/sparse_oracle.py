"""The same sparse program in both frameworks, and what it means that they agree.

A program takes the library and returns tensors. It is run twice; results must have the same layout, dtype, shape and elements. Which zeros
are stored, and in which order, is compared where `exactly` is asked for: by the text of the tensors, which shows all of it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")


def matrix(lib: Any, dtype: str = "float32", coalesced: bool = False) -> Any:
    """A (4, 5) COO matrix in which one place stands twice and one row is empty."""
    indices = lib.tensor([[0, 3, 1, 3, 1, 3], [2, 0, 4, 3, 0, 3]])
    values = lib.tensor([0.5, -0.25, 0.75, 0.125, -0.5, 0.25]).to(getattr(lib, dtype))
    found = lib.sparse_coo_tensor(indices, values, (4, 5))
    return found.coalesce() if coalesced else found


def hybrid(lib: Any) -> Any:
    """A COO tensor of two sparse dimensions and a dense one: (3, 4, 2)."""
    return lib.sparse_coo_tensor(lib.tensor([[0, 2, 0], [1, 3, 1]]), lib.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), (3, 4, 2))


def rows(lib: Any) -> Any:
    """The matrix as CSR."""
    return matrix(lib).to_sparse_csr()


def columns(lib: Any) -> Any:
    """The matrix as CSC."""
    return matrix(lib).to_sparse_csc()


def blocks(lib: Any) -> Any:
    """The matrix in rows of blocks of 2 x 1."""
    return matrix(lib).to_dense().to_sparse_bsr((2, 1))


def block_columns(lib: Any) -> Any:
    """The same in columns of blocks of 1 x 5."""
    return matrix(lib).to_dense().to_sparse_bsc((1, 5))


def batch(lib: Any) -> Any:
    """Two CSR matrices: (2, 4, 5)."""
    one = matrix(lib).to_dense()
    return lib.stack([one, one * 2 - one.relu()]).to_sparse_csr()


def rows_of_pairs(lib: Any) -> Any:
    """A CSR matrix each element of which is a pair: (4, 5, 2)."""
    one = matrix(lib).to_dense()
    return lib.stack([one, -one], -1).to_sparse_csr(dense_dim=1)


def dense(lib: Any, *shape: int) -> Any:
    """Some numbers of either sign."""
    return lib.from_numpy(np.sin(np.arange(np.prod(shape), dtype=np.float32) * 1.7).reshape(shape))


KINDS = {"coo": matrix, "coalesced": lambda lib: matrix(lib, coalesced=True), "hybrid": hybrid, "csr": rows, "csc": columns}
COMPRESSED = {"csr": rows, "csc": columns, "bsr": blocks, "bsc": block_columns, "batch": batch, "pairs": rows_of_pairs}
ALL = KINDS | COMPRESSED


def run(program: Callable, lib: Any) -> Any:
    """What a program gives in one of the libraries. PyTorch says once that sparse CSR is young, and that invariants are not checked."""
    if lib is flambeau:
        return program(lib)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return program(lib)


def agree(program: Callable, exactly: bool = False, tolerance: float = 1e-5) -> None:
    """Both libraries give the same."""
    assert_same(run(program, flambeau), run(program, torch), exactly, tolerance)


def assert_same(ours: Any, theirs: Any, exactly: bool = False, tolerance: float = 1e-5) -> None:
    if isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs)
        for mine, other in zip(ours, theirs, strict=True):
            assert_same(mine, other, exactly, tolerance)
    elif isinstance(theirs, torch.Tensor):
        assert str(ours.layout) == str(theirs.layout)
        assert str(ours.dtype) == str(theirs.dtype)
        assert tuple(ours.shape) == tuple(theirs.shape)
        if exactly:
            assert repr(ours.detach()) == repr(theirs.detach())
        np.testing.assert_allclose(numbers(ours), numbers(theirs), rtol=tolerance, atol=tolerance)
    else:
        assert ours == theirs


def numbers(tensor: Any) -> np.ndarray:
    """All elements of a tensor of any layout."""
    tensor = tensor.detach()
    tensor = tensor.to_dense() if "sparse" in str(tensor.layout) else tensor
    return (tensor.float() if tensor.dtype in (torch.bfloat16, flambeau.bfloat16) else tensor).numpy()


def raises_alike(program: Callable) -> None:
    """Both libraries raise an exception of the same type."""
    with pytest.raises(Exception) as theirs:
        run(program, torch)
    with pytest.raises(theirs.type):
        run(program, flambeau)
