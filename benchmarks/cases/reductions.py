"""Reductions of 2048 x 2048: down the columns (dim 0), along the rows (dim 1), and to one number (None)."""

from __future__ import annotations

from benchmarks.case import case

N = 2048


def reduction(body):
    """Declare `body` for each dimension and for all of them."""
    return case(wanted=1.0, dim=[0, 1, None])(body)


@reduction
def sum_(torch, device, dim):
    """Sum."""
    x = torch.randn(N, N, device=device)
    return lambda: torch.sum(x, dim=dim)


@reduction
def mean(torch, device, dim):
    """Mean."""
    x = torch.randn(N, N, device=device)
    return lambda: torch.mean(x, dim=dim)


@reduction
def max_(torch, device, dim):
    """Largest value, and where it stands unless it is the largest of all."""
    x = torch.randn(N, N, device=device)
    return (lambda: torch.max(x)) if dim is None else (lambda: torch.max(x, dim=dim))


@reduction
def argmax(torch, device, dim):
    """Where the largest value stands."""
    x = torch.randn(N, N, device=device)
    return lambda: torch.argmax(x, dim=dim)


@reduction
def var(torch, device, dim):
    """Variance, divided by n - 1."""
    x = torch.randn(N, N, device=device)
    return lambda: torch.var(x, dim=dim)


@reduction
def logsumexp(torch, device, dim):
    """log(sum(exp(x))), shifted by the largest value."""
    x = torch.randn(N, N, device=device)
    dims = (0, 1) if dim is None else dim
    return lambda: torch.logsumexp(x, dim=dims)


@case(wanted=1.0, dim=[0, 1])
def cumsum(torch, device, dim):
    """Running sum."""
    x = torch.randn(N, N, device=device)
    return lambda: torch.cumsum(x, dim=dim)


@case(wanted=1.0, dim=[0, 1])
def sort(torch, device, dim):
    """Sorted values and their indices, 1024 x 1024."""
    x = torch.randn(1024, 1024, device=device)
    return lambda: torch.sort(x, dim=dim)


@case(wanted=1.0, k=[1, 16])
def topk(torch, device, k):
    """The k largest of every row, and where they stand."""
    x = torch.randn(N, N, device=device)
    return lambda: torch.topk(x, k, dim=1)
