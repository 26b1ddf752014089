"""Steps of optimizers: over 50 matrices of 256 x 256, where memory sets the pace, and over ten tiny tensors, where the way there does.

`fused` is PyTorch's own fused kernel; here every step is one launch.
"""

from __future__ import annotations

from benchmarks.case import case


@case(wanted=0.3, name=["SGD", "Adam", "AdamW"])
def step(torch, device, name):
    """50 matrices of 256 x 256, by default options (SGD: with momentum)."""
    return prepared(torch, device, name, [(256, 256)] * 50)


@case(wanted=1.0, name=["SGD", "Adam", "AdamW"])
def step_fused(torch, device, name):
    """50 matrices of 256 x 256, with fused=True."""
    return prepared(torch, device, name, [(256, 256)] * 50, fused=True)


@case(wanted=0.3, name=["SGD", "Adam", "AdamW", "RMSprop", "Adagrad"])
def tiny_step(torch, device, name):
    """Ten tensors of 4 x 4."""
    return prepared(torch, device, name, [(4, 4)] * 10)


@case(wanted=0.5, name=["SGD", "AdamW"])
def tiny_step_fused(torch, device, name):
    """Ten tensors of 4 x 4, with fused=True."""
    return prepared(torch, device, name, [(4, 4)] * 10, fused=True)


def prepared(torch, device, name, shapes, **options):
    params = [torch.randn(shape, device=device, requires_grad=True) for shape in shapes]
    for p in params:
        p.grad = torch.randn(p.shape, device=device)
    more = {"momentum": 0.9} if name == "SGD" else {}
    return getattr(torch.optim, name)(params, **more, **options).step
