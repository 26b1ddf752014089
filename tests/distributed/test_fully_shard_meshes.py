"""fully_shard on meshes of four ranks does what PyTorch's does: replicas, pieces of several sizes, tensor parallelism."""

from __future__ import annotations

from typing import Any

import pytest
from cases import cases, names, same
from fully_shard_common import COMMON

FOUR_RANKS = (
    COMMON
    + """
from TORCH.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from TORCH.distributed.fsdp._fully_shard._fsdp_common import FSDPMeshInfo, ShardPlacementResult

flat = init_device_mesh("cpu", (4,))
grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns"))


def case_replicas():
    m = model()
    for layer in (m[0], m[2]):
        fully_shard(layer, mesh=grid)
    fully_shard(m, mesh=grid)
    said = [train(m), weights(m), [[list(p.to_local().shape), str(p.placements)] for p in m.parameters()]]
    m.set_requires_all_reduce(False)
    loss_of(m, 1).backward()
    said.append([p.grad is None for p in m.parameters()])
    loss_of(m, 2).backward()
    m.set_requires_all_reduce(True)
    loss_of(m, 3).backward()
    return [*said, gradients(m)]


def case_partly():
    m = model()
    m.append(nn.Linear(3, 3))
    for layer in (m[0], m[2], m[5]):
        fully_shard(layer, mesh=flat, reshard_after_forward=2)
    fully_shard(m, mesh=flat, reshard_after_forward=True)
    loss = loss_of(m)
    between = held(m), [list(p.to_local().shape) for p in m.parameters()], [str(p.placements) for p in m.parameters()]
    loss.backward()
    said = gradients(m)
    m.zero_grad()
    return [between, said, train(m), weights(m), held(m)]


def case_uneven():
    torch.manual_seed(3)
    m = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    fully_shard(m[0], mesh=flat)
    fully_shard(m, mesh=flat)
    return [[list(p.to_local().shape) for p in m.parameters()], train(m), weights(m)]


def parallel(sharding):
    torch.manual_seed(7)
    m = nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 3))
    parallelize_module(m, grid["columns"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    if sharding:
        for layer in (m[0], m[2]):
            fully_shard(layer, mesh=grid["rows"])
        fully_shard(m, mesh=grid["rows"])
    return m


def loss_by_rows(m, seed=1):
    x, y = (t.chunk(2)[grid.get_local_rank("rows")] for t in batch(seed))
    return F.mse_loss(m(x), y)


def case_tensor_parallel():
    m = parallel(True)
    said = [[list(p.shape), list(p.to_local().shape)] for p in m.parameters()]
    loss_by_rows(m).backward()
    said += [gradients(m), numbers([torch.nn.utils.clip_grad_norm_(m.parameters(), 1e9)])]
    m.zero_grad()
    return [said, train(m, loss=loss_by_rows), weights(m)]


def case_meshes_by_parameter():
    m = nn.ModuleDict({"shared": nn.Linear(6, 6), "expert": nn.Linear(6, 3)})
    torch.manual_seed(7)
    net = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 3))
    all_ranks, half = FSDPMeshInfo(flat, shard_mesh_dim=0), FSDPMeshInfo(grid["columns"], shard_mesh_dim=0)
    experts = set(net[1].parameters())
    fully_shard(net, mesh=flat, shard_placement_fn=lambda p: ShardPlacementResult(Shard(0), half) if p in experts else None)
    loss_of(net).backward()
    return [[list(p.to_local().shape) for p in net.parameters()], [round(float(p.grad.to_local().sum()), 5) for p in net.parameters()]]
"""
)


def said(name: str, framework: str = "flambeau") -> list[Any]:
    """What the four ranks said in a case."""
    return [found[name] for found in cases(FOUR_RANKS, framework, 4)]


@pytest.mark.parametrize("name", names(FOUR_RANKS))
def test_as_pytorch_on_meshes(name: str) -> None:
    """Replicas, pieces of several sizes and tensor parallelism: the same on four ranks."""
    same(said(name), said(name, "torch"))
