"""Losses: of a classifier's batch (64 x 10), of characters (768 x 65) and of words (512 x 50257); and the squared error."""

from __future__ import annotations

from benchmarks.case import case


def classes(torch, device, shape):
    n, c = map(int, shape.split("x"))
    return torch.randn(n, c, device=device), torch.randint(0, c, (n,), device=device)


def cross_entropy(torch, device, shape):
    """Cross entropy, forward."""
    x, target = classes(torch, device, shape)
    return lambda: torch.nn.functional.cross_entropy(x, target)


def cross_entropy_backward(torch, device, shape):
    """Cross entropy, forward and backward."""
    x, target = classes(torch, device, shape)
    x.requires_grad_()

    def step():
        x.grad = None
        torch.nn.functional.cross_entropy(x, target).backward()

    return step


def mse_loss(torch, device, shape):
    """Mean squared error, forward."""
    n, c = map(int, shape.split("x"))
    x, y = torch.randn(n, c, device=device), torch.randn(n, c, device=device)
    return lambda: torch.nn.functional.mse_loss(x, y)


def mse_loss_backward(torch, device, shape):
    """Mean squared error, forward and backward."""
    n, c = map(int, shape.split("x"))
    x, y = torch.randn(n, c, device=device, requires_grad=True), torch.randn(n, c, device=device)

    def step():
        x.grad = None
        torch.nn.functional.mse_loss(x, y).backward()

    return step


def binary_cross_entropy_with_logits_backward(torch, device, shape):
    """Binary cross entropy of logits, forward and backward."""
    n, c = map(int, shape.split("x"))
    x, y = torch.randn(n, c, device=device, requires_grad=True), torch.rand(n, c, device=device)

    def step():
        x.grad = None
        torch.nn.functional.binary_cross_entropy_with_logits(x, y).backward()

    return step


for body in (cross_entropy, cross_entropy_backward):
    case(wanted=0.7, shape=["64x10"])(body)
    case(wanted=1.0, shape=["768x65", "512x50257"])(body)
for body in (mse_loss, mse_loss_backward, binary_cross_entropy_with_logits_backward):
    case(wanted=0.7, shape=["64x1"])(body)
    case(wanted=1.0, shape=["1024x1024"])(body)
