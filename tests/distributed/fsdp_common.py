"""What programs of the tests of FullyShardedDataParallel begin with."""

from __future__ import annotations

SETUP = """
import math
from functools import partial
from TORCH.distributed.fsdp import *
from TORCH.distributed.fsdp import FullyShardedDataParallel as FSDP
from TORCH.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from TORCH.distributed.fsdp.wrap import *
from TORCH.distributed.device_mesh import init_device_mesh

warnings.simplefilter("ignore")
cpu = torch.device("cpu")
BOTH = (False, True)    # use_orig_params


def wrapped(module=None, **options):
    options = {"auto_wrap_policy": ModuleWrapPolicy({nn.Linear}), "device_id": cpu} | options
    return FSDP(model() if module is None else module, **options)


def looks(m):
    return [[name, list(p.shape), str(p.dtype).split(".")[-1], None if p.grad is None else list(p.grad.shape)] for name, p in m.named_parameters()]


def numbers(state):
    return [[name, list(t.shape), round(float(t.float().sum()), 4), round(float(t.float().abs().max()), 4)] for name, t in state.items()]


def plain(t):
    "this rank's part of a sharded tensor"
    return t.to_local() if hasattr(t, "to_local") else t.local_tensor() if hasattr(t, "local_tensor") else t


def step(m, optimizer, seed, scale=1.0, set_to_none=True):
    x, y = batch(seed)
    loss = F.mse_loss(m(mine(x)), mine(y)) * scale
    loss.backward()
    return round(float(loss), 5)


def trained(m, steps=3, make=None):
    optimizer = (make or partial(torch.optim.Adam, lr=0.01))(m.parameters())
    losses = []
    for seed in range(steps):
        optimizer.zero_grad()
        losses.append(step(m, optimizer, seed))
        optimizer.step()
    return m, optimizer, losses
"""
