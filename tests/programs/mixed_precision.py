"""Mixed precision on the CPU, and memory for time: autocast, the gradient scaler, recomputed activations."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.amp import GradScaler, autocast
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))
x, y = torch.randn(12, 8), torch.randint(0, 4, (12,))
with autocast(device_type="cpu", dtype=torch.bfloat16):
    logits = model(x)
    loss = F.cross_entropy(logits, y)
    print(logits.dtype, loss.dtype, (x @ x.T).dtype, torch.softmax(logits, 1).dtype, torch.is_autocast_enabled("cpu"))
    with autocast(device_type="cpu", enabled=False):
        print((x @ x.T).dtype)
loss.backward()
print({p.dtype for p in model.parameters()}, {p.grad.dtype for p in model.parameters()})


def step(model, opt, use_amp):
    opt.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=use_amp):
        loss = F.cross_entropy(model(x), y)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    return loss.item()


for use_amp in (False, True):
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    print(use_amp, f"{[step(net, opt, use_amp) for _ in range(5)][-1]:.1f}")

scaler = GradScaler("cpu", init_scale=4.0, growth_interval=2)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(4):
    opt.zero_grad()
    loss = F.cross_entropy(model(x), y) * (float("inf") if i == 2 else 1.0)
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    scaler.step(opt)
    scaler.update()
    print(i, scaler.get_scale())
print(scaler.state_dict())


class Stack(nn.Module):
    def __init__(self, blocks, use_checkpoint):
        super().__init__()
        self.blocks, self.use_checkpoint = nn.ModuleList(blocks), use_checkpoint
        self.calls = 0

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(self.run, block, x, use_reentrant=False) if self.use_checkpoint and self.training else self.run(block, x)
        return x

    def run(self, block, x):
        self.calls += 1
        return block(x)


grads = []
for use_checkpoint in (False, True):
    torch.manual_seed(2)
    stack = Stack([nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(0.5)) for _ in range(3)], use_checkpoint)
    torch.manual_seed(3)
    stack(x).sum().backward()
    grads.append([p.grad for p in stack.parameters()])
    print(use_checkpoint, stack.calls)
print(all(map(torch.equal, *grads)))
