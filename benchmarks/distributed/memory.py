"""What a rank keeps of the GPT: parameters, gradients and optimizer state, with DistributedDataParallel and with fully_shard."""

from __future__ import annotations

from importlib import import_module

from benchmarks.cases.training import gpt
from benchmarks.distributed.cases import probe


@probe(wanted=None, unit="B")
def ddp(torch, device):
    """DistributedDataParallel: every rank has everything."""
    return lambda: held(torch, torch.nn.parallel.DistributedDataParallel)


@probe(wanted=None, unit="B")
def fsdp(torch, device):
    """fully_shard: every rank has its part."""
    return lambda: held(torch, sharded(torch))


@probe(wanted=None, limit=55.0, unit="%")
def share(torch, device):
    """The second over the first."""
    return lambda: 100 * held(torch, sharded(torch)) / held(torch, torch.nn.parallel.DistributedDataParallel)


def held(torch, wrap):
    """Bytes of parameters, gradients and optimizer state on this rank after a step, the local part of what is sharded."""
    torch.manual_seed(0)
    model = wrap(gpt(torch, vocabulary=65, block=64))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model(torch.randint(0, 65, (12, 64))).sum().backward()
    optimizer.step()
    parameters = list(model.parameters())
    states = [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)]
    local = [t.to_local() if hasattr(t, "to_local") else t for t in [*parameters, *[p.grad for p in parameters], *states]]
    return float(sum(t.numel() * t.element_size() for t in local))


def sharded(torch):
    """What fully_shard makes of the GPT, block by block."""
    distributed = f"{torch.__name__}.distributed"
    fully_shard = import_module(f"{distributed}.fsdp").fully_shard
    ranks = torch.distributed.get_world_size()
    mesh = import_module(f"{distributed}.device_mesh").init_device_mesh("cpu", (ranks,))

    def wrap(model):
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    return wrap
