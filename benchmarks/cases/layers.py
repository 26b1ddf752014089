"""Layers in a training step: forward alone, and forward with backward."""

from __future__ import annotations

from benchmarks.case import case


def step(layer, x, backward):
    """What is timed: a call of the layer, followed by its derivatives if asked for."""
    if not backward:
        return lambda: layer(x)
    grad = layer(x).detach()  # of the right shape

    def train():
        layer(x).backward(grad)
        x.grad = None

    return train


@case(wanted=1.0, backward=[False, True])
def batch_norm(torch, device, backward):
    """BatchNorm2d in training on images of 64 x 64 x 28 x 28."""
    layer = torch.nn.BatchNorm2d(64).to(device)
    return step(layer, torch.randn(64, 64, 28, 28, device=device, requires_grad=backward), backward)


@case(wanted=1.0)
def batch_norm_eval(torch, device):
    """BatchNorm2d in evaluation on images of 64 x 64 x 28 x 28."""
    layer = torch.nn.BatchNorm2d(64).to(device).eval().requires_grad_(False)
    return step(layer, torch.randn(64, 64, 28, 28, device=device), False)


@case(wanted=1.0, backward=[False, True])
def batch_norm_features(torch, device, backward):
    """BatchNorm1d in training on 256 x 512."""
    layer = torch.nn.BatchNorm1d(512).to(device)
    return step(layer, torch.randn(256, 512, device=device, requires_grad=backward), backward)


@case(wanted=1.0, backward=[False, True])
def group_norm(torch, device, backward):
    """GroupNorm of 32 groups on images of 16 x 64 x 28 x 28."""
    layer = torch.nn.GroupNorm(32, 64).to(device)
    return step(layer, torch.randn(16, 64, 28, 28, device=device, requires_grad=backward), backward)


@case(wanted=1.0, backward=[False, True])
def dropout(torch, device, backward):
    """Dropout of half of 1024 x 1024."""
    return step(torch.nn.Dropout(0.5), torch.randn(1024, 1024, device=device, requires_grad=backward), backward)


@case(wanted=1.0)
def dropout_small(torch, device):
    """Dropout of 64 x 128, forward and backward."""
    return step(torch.nn.Dropout(0.1), torch.randn(64, 128, device=device, requires_grad=True), True)


@case(wanted=1.0)
def embedding(torch, device):
    """Embedding of 16 x 512 tokens in 10000 x 256, forward and backward."""
    layer = torch.nn.Embedding(10000, 256).to(device)
    tokens = torch.randint(0, 10000, (16, 512), device=device)
    return step(layer, tokens, True)


@case(wanted=1.0, mode=["reflect", "constant"])
def pad(torch, device, mode):
    """A border of 3 around images of 16 x 64 x 56 x 56."""
    x = torch.randn(16, 64, 56, 56, device=device)
    return lambda: torch.nn.functional.pad(x, (3, 3, 3, 3), mode=mode)


@case(wanted=1.0, mode=["nearest", "bilinear"], backward=[False, True])
def upsample(torch, device, mode, backward):
    """Images of 8 x 64 x 28 x 28 at twice the size."""
    layer = torch.nn.Upsample(scale_factor=2, mode=mode)
    return step(layer, torch.randn(8, 64, 28, 28, device=device, requires_grad=backward), backward)


@case(wanted=1.0)
def grid_sample(torch, device):
    """Images of 8 x 16 x 32 x 32 read at 32 x 32 points, forward and backward."""
    x = torch.randn(8, 16, 32, 32, device=device, requires_grad=True)
    grid = torch.rand(8, 32, 32, 2, device=device) * 2 - 1
    return step(lambda x: torch.nn.functional.grid_sample(x, grid, align_corners=False), x, True)
