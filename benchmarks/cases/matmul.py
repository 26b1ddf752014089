"""Matrix products in float32: BLAS is nobody's own, but calling it, threading it and giving it memory is."""

from __future__ import annotations

from benchmarks.case import case


@case(wanted=1.0, n=[64, 256, 512, 1024, 2048])
def square(torch, device, n):
    """a @ b, n x n."""
    a, b = torch.randn(n, n, device=device), torch.randn(n, n, device=device)
    return lambda: a @ b


@case(wanted=1.0, n=[64, 512])
def square_transposed(torch, device, n):
    """a @ b.T, n x n: a transposed operand is a flag to BLAS, not a copy."""
    a, b = torch.randn(n, n, device=device), torch.randn(n, n, device=device)
    return lambda: a @ b.T


@case(wanted=1.0)
def batched(torch, device):
    """48 products (64, 32) @ (32, 64): the heads of a small attention."""
    a, b = torch.randn(48, 64, 32, device=device), torch.randn(48, 32, 64, device=device)
    return lambda: torch.bmm(a, b)


@case(wanted=1.0)
def linear(torch, device):
    """bias + x @ weight.T, (64, 784) to (64, 256): the first layer of an MNIST perceptron."""
    x = torch.randn(64, 784, device=device)
    weight, bias = torch.randn(256, 784, device=device), torch.randn(256, device=device)
    return lambda: torch.addmm(bias, x, weight.T)


@case(wanted=1.0)
def linear_backward(torch, device):
    """The same with the gradients of x, weight and bias."""
    x = torch.randn(64, 784, device=device, requires_grad=True)
    weight = torch.randn(256, 784, device=device, requires_grad=True)
    bias = torch.randn(256, device=device, requires_grad=True)
    output_grad = torch.randn(64, 256, device=device)

    def step():
        x.grad = weight.grad = bias.grad = None
        torch.addmm(bias, x, weight.T).backward(output_grad)

    return step
