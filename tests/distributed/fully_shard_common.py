"""What programs of the tests of fully_shard begin with."""

from __future__ import annotations

COMMON = """
from TORCH.distributed.fsdp import (
    CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, UnshardHandle, fully_shard, register_fsdp_forward_method, share_comm_ctx,
)
from TORCH.distributed.device_mesh import init_device_mesh
from TORCH.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from TORCH.utils.checkpoint import checkpoint


def full(t):
    return t.full_tensor() if isinstance(t, DTensor) else t


def numbers(tensors):
    return [round(float(x), 6) for t in tensors if t is not None for t in [full(t).detach().float()] for x in (t.sum(), t.abs().max())]


def weights(m):
    return numbers(m.parameters())


def gradients(m):
    return [x for p in m.parameters() for x in (numbers([p.grad]) if p.grad is not None else [-99])]


def held(m):
    return [[name, type(p).__name__ if isinstance(p, DTensor) else "plain", list(p.shape)] for name, p in m.named_parameters()]


def loss_of(m, seed=1):
    x, y = batch(seed)
    return F.mse_loss(m(mine(x)), mine(y))


def train(m, steps=4, loss=loss_of, make=lambda ps: torch.optim.Adam(ps, lr=0.05)):
    optimizer, losses = make(m.parameters()), []
    for step in range(steps):
        total = loss(m, step)
        total.backward()
        losses.append(round(total.item(), 5))
        optimizer.step()
        optimizer.zero_grad()
    return losses
"""
