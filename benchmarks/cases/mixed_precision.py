"""Mixed precision and checkpointed gradients: a GPT's training step with each, and the scaler by itself."""

from __future__ import annotations

from benchmarks.case import case
from benchmarks.cases.training import gpt, stepping


@case(wanted=0.8, dtype=["bfloat16", "float16"])
def autocast_step(torch, device, dtype):
    """The GPT of training.gpt_step, forward and loss inside autocast."""
    F, low = torch.nn.functional, getattr(torch, dtype)
    model, x, y = _job(torch, device)

    def loss_of(model):
        with torch.autocast(device, dtype=low):
            return F.cross_entropy(model(x).view(-1, 65), y.view(-1))

    return stepping(model, torch.optim.AdamW(model.parameters(), lr=1e-3), loss_of, clip=torch.nn.utils.clip_grad_norm_)


@case(wanted=0.8)
def checkpointed_step(torch, device):
    """The same in float32, each of its layers checkpointed."""
    from importlib import import_module

    F = torch.nn.functional
    checkpoint = import_module(f"{torch.__name__}.utils.checkpoint").checkpoint
    model, x, y = _job(torch, device)
    for block in model.blocks:
        block.forward = _again(checkpoint, block.forward)
    loss_of = lambda model: F.cross_entropy(model(x).view(-1, 65), y.view(-1))  # noqa: E731
    return stepping(model, torch.optim.AdamW(model.parameters(), lr=1e-3), loss_of)


@case(wanted=1.0)
def unscale(torch, device):
    """GradScaler.unscale_ and update: 50 gradients of 256 x 256."""
    params = [torch.nn.Parameter(torch.randn(256, 256, device=device)) for _ in range(50)]
    for p in params:
        p.grad = torch.randn(256, 256, device=device)
    optimizer = torch.optim.SGD(params, lr=0.0)
    scaler = torch.amp.GradScaler(device, init_scale=1.0 + 2.0**-20, growth_interval=10**9)
    scaler.scale(torch.ones(1, device=device))

    def run():
        scaler.unscale_(optimizer)
        scaler.update()

    return run


def _job(torch, device):
    torch.manual_seed(0)
    x, y = (torch.randint(0, 65, (12, 64), device=device) for _ in range(2))
    return gpt(torch, vocabulary=65, block=64).to(device), x, y


def _again(checkpoint, forward):
    return lambda x: checkpoint(forward, x, use_reentrant=False)
