"""The same numbers every time: seeds of everything, generators, states of random streams saved and put back."""

import os
import random

import numpy as np
import torch
import torch.nn as nn


def set_seed(seed: int = 42):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


def draw():
    return [
        random.random(),
        np.random.rand(),
        torch.rand(1).item(),
        nn.Linear(3, 1).weight[0, 0].item(),
        nn.Dropout()(torch.ones(8)).sum().item(),
    ]


set_seed(1)
first = draw()
set_seed(1)
print(first == draw(), [f"{value:.6f}" for value in first])
print(
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark, torch.are_deterministic_algorithms_enabled(), torch.initial_seed()
)

state, cuda = torch.get_rng_state(), torch.cuda.get_rng_state_all()
a = torch.randn(3)
torch.set_rng_state(state)
torch.cuda.set_rng_state_all(cuda)
print(torch.equal(a, torch.randn(3)), state.shape, state.dtype, cuda)

with torch.random.fork_rng():
    torch.manual_seed(0)
    print(torch.randint(0, 100, (4,)))
print(torch.randint(0, 100, (4,)))

generator = torch.Generator().manual_seed(5)
print(torch.randperm(8, generator=generator), torch.rand(2, generator=generator), generator.initial_seed())
for make in (nn.init.xavier_uniform_, nn.init.kaiming_normal_, nn.init.orthogonal_, nn.init.trunc_normal_):
    torch.manual_seed(9)
    print(f"{make.__name__:16s} {make(torch.empty(3, 4)).abs().sum().item():.4f}")
