"""Optimizers and schedules: groups, warm-up and cosine, one cycle, plateaus, a closure, accumulated gradients, a sweep of rates."""

import math

import torch
import torch.nn as nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LinearLR, OneCycleLR, ReduceLROnPlateau, SequentialLR

torch.manual_seed(3)
x = torch.randn(64, 5)
y = x @ torch.tensor([[1.0], [-2.0], [0.5], [0.0], [3.0]]) + 0.1


def fit(make, steps=20):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = make(model.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
    return loss.item()


for name, make in {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.05),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, weight_decay=1e-4, nesterov=True),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.02, betas=(0.9, 0.999), eps=1e-8),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.02, betas=(0.9, 0.95), weight_decay=0.1),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
}.items():
    print(f"{name:9s} {fit(make):.3f}")


def rates(make, steps=10):
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = make(optimizer)
    found = []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return " ".join(f"{rate:.3f}" for rate in found)


def warmup_and_cosine(optimizer):
    return SequentialLR(
        optimizer, [LinearLR(optimizer, start_factor=0.1, total_iters=3), CosineAnnealingLR(optimizer, T_max=7)], milestones=[3]
    )


print(rates(warmup_and_cosine))
print(rates(lambda o: OneCycleLR(o, max_lr=2.0, total_steps=10, pct_start=0.3)))
print(rates(lambda o: LambdaLR(o, lambda step: 1 / math.sqrt(step + 1))))
optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
plateau = ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
for value in (3.0, 2.0, 2.0, 2.0, 2.0, 2.0):
    plateau.step(value)
    print(f"{optimizer.param_groups[0]['lr']:.3f}", end=" ")
print()

# a closure
w = torch.zeros(5, 1, requires_grad=True)
lbfgs = torch.optim.LBFGS([w], lr=1.0, max_iter=20)


def closure():
    lbfgs.zero_grad()
    loss = ((x @ w - y) ** 2).mean()
    loss.backward()
    return loss


for _ in range(3):
    lbfgs.step(closure)
print(f"{closure().item():.4f}", [f"{v:.2f}" for v in w.flatten().tolist()])

# four small batches with gradients added up are one large batch
model = nn.Linear(5, 1)
whole = torch.autograd.grad(nn.functional.mse_loss(model(x), y), model.weight)[0]
model.zero_grad()
for part_x, part_y in zip(x.split(16), y.split(16), strict=True):
    (nn.functional.mse_loss(model(part_x), part_y) / 4).backward()
print(torch.allclose(model.weight.grad, whole, atol=1e-6))

# a sweep of rates: where does the loss fall fastest?
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
found = []
for step in range(40):
    rate = 1e-4 * (10.0 / 1e-4) ** (step / 39)
    optimizer.param_groups[0]["lr"] = rate
    loss = nn.functional.mse_loss(model(x), y)
    if not torch.isfinite(loss) or loss.item() > 4 * min([value for _, value in found], default=math.inf):
        break
    found.append((rate, loss.item()))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
falls = [found[i + 1][1] - found[i][1] for i in range(len(found) - 1)]
print(f"{len(found)} rates, steepest at {found[falls.index(min(falls))][0]:.3f}")

groups = torch.optim.AdamW([{"params": model[0].parameters(), "lr": 1e-4}, {"params": model[2].parameters()}], lr=1e-3)
print([(len(g["params"]), g["lr"], g["weight_decay"]) for g in groups.param_groups], list(groups.state_dict()))
