"""Optimizers of others: Lion, schedule-free AdamW, Prodigy, and averages of weights by torch-ema and ema-pytorch, on one small problem."""

import torch
from ema_pytorch import EMA
from lion_pytorch import Lion
from prodigyopt import Prodigy
from schedulefree import AdamWScheduleFree, SGDScheduleFree
from torch import nn
from torch_ema import ExponentialMovingAverage

OPTIMIZERS = {
    "Lion": lambda p: Lion(p, lr=1e-3, weight_decay=1e-2),
    "Prodigy": lambda p: Prodigy(p, lr=1.0),
    "AdamWScheduleFree": lambda p: AdamWScheduleFree(p, lr=1e-2, warmup_steps=5),
    "SGDScheduleFree": lambda p: SGDScheduleFree(p, lr=1e-1),
}
for name, make in OPTIMIZERS.items():
    torch.manual_seed(0)
    x = torch.randn(64, 8)
    y = (x[:, :1] * x[:, 1:2]).tanh()
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 1))
    optimizer = make(model.parameters())
    average, copy = ExponentialMovingAverage(model.parameters(), decay=0.9), EMA(model, beta=0.9, update_after_step=2, update_every=2)
    if hasattr(optimizer, "train"):
        optimizer.train()
    for step in range(20):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update()
        copy.update()
        if step % 5 == 4:
            print(name, "loss", loss.item())
    if hasattr(optimizer, "eval"):
        optimizer.eval()
    with average.average_parameters(), torch.no_grad():
        print(name, "torch-ema", nn.functional.mse_loss(model(x), y).item())
    with torch.no_grad():
        print(name, "ema-pytorch", nn.functional.mse_loss(copy(x), y).item())
    state = optimizer.state_dict()
    again = make(model.parameters())
    again.load_state_dict(state)
    print(name, sorted(map(str, next(iter(again.state_dict()["state"].values())))))
