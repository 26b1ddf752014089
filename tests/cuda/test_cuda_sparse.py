"""Sparse tensors on the GPU against the CPU: the parts are dense tensors there, and products are made of operations that CuPy has."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch

INDICES, VALUES = torch.tensor([[0, 3, 1, 3, 1, 3], [2, 0, 4, 3, 0, 3]]), torch.tensor([0.5, -0.25, 0.75, 0.125, -0.5, 0.25])
PROGRAMS = {
    "coalesce": lambda x: x.coalesce(),
    "dense": lambda x: x.to_dense(),
    "mm": lambda x: torch.sparse.mm(x, torch.arange(15.0, device=x.device).reshape(5, 3)),
    "csr": lambda x: x.to_sparse_csr() @ torch.arange(15.0, device=x.device).reshape(5, 3),
    "csc": lambda x: x.to_sparse_csc().to_dense(),
    "sparse product": lambda x: x @ x.t(),
    "sum": lambda x: torch.sparse.sum(x, 0),
    "softmax": lambda x: torch.sparse.softmax(x, 1),
    "add": lambda x: x + x.coalesce() * 2,
    "mask": lambda x: torch.ones(4, 5, device=x.device).sparse_mask(x.coalesce()),
    "index_select": lambda x: x.index_select(0, torch.tensor([3, 1], device=x.device)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_sparse_tensors(gpu, name):
    """The result is where its operands are, and has the values it has in main memory; so has the gradient."""
    found = []
    for device in ("cpu", "cuda"):
        values = VALUES.to(device, copy=True).requires_grad_()
        result = PROGRAMS[name](torch.sparse_coo_tensor(INDICES.to(device), values, (4, 5)))
        assert result.device.type == device
        result = result.to_dense()
        if result.requires_grad:
            (result * result).sum().backward()
        found.append([result.detach().cpu().numpy(), None if values.grad is None else values.grad.cpu().numpy()])
    for here, there in zip(*found, strict=True):
        assert (here is None) == (there is None)
        if here is not None:
            np.testing.assert_allclose(here, there, rtol=1e-5, atol=1e-6)


def test_sparse_steps(gpu):
    """An embedding with sparse gradients moves as it does in main memory."""
    found = []
    for device in ("cpu", "cuda"):
        layer = torch.nn.Embedding(6, 3, sparse=True, _weight=torch.arange(18.0).reshape(6, 3).to(device))
        for optimizer in (torch.optim.SparseAdam(layer.parameters(), lr=0.1), torch.optim.SGD(layer.parameters(), lr=0.1)):
            optimizer.zero_grad()
            layer(torch.tensor([1, 4, 1], device=device)).sin().sum().backward()
            assert layer.weight.grad.is_sparse
            optimizer.step()
        found.append(layer.weight.detach().cpu().numpy())
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)
