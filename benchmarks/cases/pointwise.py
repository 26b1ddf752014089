"""Pointwise and row-wise work on 1024 x 1024: 4 MB in, 4 MB of fresh memory out."""

from __future__ import annotations

from benchmarks.case import case

N = 1024


@case(wanted=1.0)
def add(torch, device):
    """a + b, all contiguous."""
    a, b = torch.randn(N, N, device=device), torch.randn(N, N, device=device)
    return lambda: a + b


@case(wanted=1.0)
def add_transposed(torch, device):
    """a.T + b.T: both walked in their own order, neither copied."""
    a, b = torch.randn(N, N, device=device).T, torch.randn(N, N, device=device).T
    return lambda: a + b


@case(wanted=1.0)
def add_mixed_order(torch, device):
    """a + b.T: one of the two must be read across the grain."""
    a, b = torch.randn(N, N, device=device), torch.randn(N, N, device=device).T
    return lambda: a + b


@case(wanted=1.0)
def add_bias(torch, device):
    """x + bias, the bias broadcast over the rows."""
    x, bias = torch.randn(N, N, device=device), torch.randn(N, device=device)
    return lambda: x + bias


@case(wanted=1.0)
def add_bfloat16(torch, device):
    """a + b in bfloat16."""
    a = torch.randn(N, N, device=device).to(torch.bfloat16)
    b = torch.randn(N, N, device=device).to(torch.bfloat16)
    return lambda: a + b


@case(wanted=1.0)
def to_bfloat16(torch, device):
    """x.to(bfloat16)."""
    x = torch.randn(N, N, device=device)
    return lambda: x.to(torch.bfloat16)


@case(wanted=1.0)
def exp(torch, device):
    """exp(x)."""
    x = torch.randn(N, N, device=device)
    return lambda: torch.exp(x)


@case(wanted=1.0)
def sigmoid(torch, device):
    """sigmoid(x)."""
    x = torch.randn(N, N, device=device)
    return lambda: torch.sigmoid(x)


@case(wanted=1.0)
def tanh(torch, device):
    """tanh(x)."""
    x = torch.randn(N, N, device=device)
    return lambda: torch.tanh(x)


@case(wanted=1.0)
def relu(torch, device):
    """relu(x)."""
    x = torch.randn(N, N, device=device)
    return lambda: torch.relu(x)


@case(wanted=1.0)
def where(torch, device):
    """where(mask, a, b), the mask ready."""
    a, b = torch.randn(N, N, device=device), torch.randn(N, N, device=device)
    mask = a > 0
    return lambda: torch.where(mask, a, b)


@case(wanted=1.0, backward=[False, True])
def chain(torch, device, backward):
    """a * b + c: two operations, one temporary."""
    a, b, c = (torch.randn(N, N, device=device, requires_grad=backward) for _ in range(3))
    return forward_or_step(lambda: a * b + c, backward, [a, b, c])


@case(wanted=1.0, backward=[False, True])
def silu_by_hand(torch, device, backward):
    """x / (1 + exp(-x)): what people write before they look for silu."""
    x = torch.randn(N, N, device=device, requires_grad=backward)
    return forward_or_step(lambda: x / (1 + torch.exp(-x)), backward, [x])


@case(wanted=1.0, backward=[False, True])
def gelu(torch, device, backward):
    """gelu(x), the exact one."""
    x, function = torch.randn(N, N, device=device, requires_grad=backward), functional(torch, "gelu")
    return forward_or_step(lambda: function(x), backward, [x])


@case(wanted=1.0, backward=[False, True])
def softmax(torch, device, backward):
    """softmax over the rows."""
    x, function = torch.randn(N, N, device=device, requires_grad=backward), functional(torch, "softmax")
    return forward_or_step(lambda: function(x, dim=-1), backward, [x])


@case(wanted=1.0, backward=[False, True])
def layer_norm(torch, device, backward):
    """layer_norm over the rows, with scale and shift."""
    x, function = torch.randn(N, N, device=device, requires_grad=backward), functional(torch, "layer_norm")
    weight, bias = (torch.randn(N, device=device, requires_grad=backward) for _ in range(2))
    return forward_or_step(lambda: function(x, (N,), weight, bias), backward, [x, weight, bias])


def functional(torch, name):
    """`torch.nn.functional.name`, or `torch.name` in a framework that has no `nn.functional` (yet)."""
    place = getattr(getattr(torch, "nn", torch), "functional", torch)
    return getattr(place, name)


def forward_or_step(forward, backward, leaves):
    """`forward` itself, or forward and backward from a gradient that is ready, into leaves that have none."""
    if not backward:
        return forward
    output_grad = forward().detach()

    def step():
        for leaf in leaves:
            leaf.grad = None
        forward().backward(output_grad)

    return step
