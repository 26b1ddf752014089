"""Operations on 4 x 4 tensors: there is nothing to compute, so the clock sees the way to the kernel and back."""

from __future__ import annotations

from benchmarks.case import case


def small_op(body):
    """Declare `body` twice: without a history, and with one, where there is more to save against PyTorch."""
    case(wanted=0.7, grad=False)(body)
    case(wanted=0.6, grad=True)(body)
    return body


@small_op
def add(torch, device, grad):
    """a + b on 4 x 4."""
    a, b = matrix(torch, device, grad), matrix(torch, device, grad)
    return lambda: a + b


@small_op
def mul(torch, device, grad):
    """a * b on 4 x 4."""
    a, b = matrix(torch, device, grad), matrix(torch, device, grad)
    return lambda: a * b


@small_op
def mul_scalar(torch, device, grad):
    """a * 2.5: the number must not become a tensor on the way."""
    a = matrix(torch, device, grad)
    return lambda: a * 2.5


@small_op
def exp(torch, device, grad):
    """exp(a) on 4 x 4."""
    a = matrix(torch, device, grad)
    return lambda: torch.exp(a)


@small_op
def sum_(torch, device, grad):
    """a.sum() on 4 x 4."""
    a = matrix(torch, device, grad)
    return lambda: a.sum()


@small_op
def matmul(torch, device, grad):
    """a @ b on 4 x 4."""
    a, b = matrix(torch, device, grad), matrix(torch, device, grad)
    return lambda: a @ b


@case(wanted=1.0, grad=[False, True])
def view(torch, device, grad):
    """a.view(16): no data moves."""
    a = matrix(torch, device, grad)
    return lambda: a.view(16)


@case(wanted=1.0, grad=[False, True])
def getitem(torch, device, grad):
    """a[1]: one row, as a view."""
    a = matrix(torch, device, grad)
    return lambda: a[1]


@case(wanted=1.0, grad=[False, True])
def slice_(torch, device, grad):
    """a[:, 1:3]: two columns, as a view."""
    a = matrix(torch, device, grad)
    return lambda: a[:, 1:3]


@case(wanted=0.4, accumulate=[False, True])
def tiny_backward(torch, device, accumulate):
    """(w * x + b).sum().backward() on 4 x 4, into no gradient, as after zero_grad(), or onto the last one."""
    w, b = matrix(torch, device, grad=True), matrix(torch, device, grad=True)
    x = matrix(torch, device, grad=False)

    def step():
        if not accumulate:
            w.grad = b.grad = None
        (w * x + b).sum().backward()

    return step


def matrix(torch, device, grad):
    return torch.randn(4, 4, device=device, requires_grad=grad)
