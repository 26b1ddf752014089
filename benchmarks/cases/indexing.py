"""Reading and writing by index: 4096 rows of a 10000 x 128 table, and masks and indices over 1024 x 1024."""

from __future__ import annotations

from benchmarks.case import case

ROWS, WIDTH, LOOKUPS = 10_000, 128, 4096
N = 1024


@case(wanted=1.0)
def index_select(torch, device):
    """An embedding lookup: 4096 rows of the table."""
    table, index = torch.randn(ROWS, WIDTH, device=device), lookups(torch, device)
    return lambda: torch.index_select(table, 0, index)


@case(wanted=1.0)
def index_select_backward(torch, device):
    """The lookup and the gradient of the table, 5 MB of it, with rows that were read twice added up."""
    table, index = torch.randn(ROWS, WIDTH, device=device, requires_grad=True), lookups(torch, device)
    output_grad = torch.randn(LOOKUPS, WIDTH, device=device)

    def step():
        table.grad = None
        torch.index_select(table, 0, index).backward(output_grad)

    return step


@case(wanted=1.0)
def read_rows(torch, device):
    """table[index]: the lookup as people write it."""
    table, index = torch.randn(ROWS, WIDTH, device=device), lookups(torch, device)
    return lambda: table[index]


@case(wanted=1.0, accumulate=[False, True])
def index_put(torch, device, accumulate):
    """table.index_put_((index,), rows): rows written, or added onto those there."""
    table, index = torch.randn(ROWS, WIDTH, device=device), lookups(torch, device)
    rows = torch.randn(LOOKUPS, WIDTH, device=device)
    return lambda: table.index_put_((index,), rows, accumulate=accumulate)


@case(wanted=1.0, dim=[0, 1])
def gather(torch, device, dim):
    """gather along one dimension."""
    x, index = torch.randn(N, N, device=device), torch.randint(0, N, (N, N), device=device)
    return lambda: torch.gather(x, dim, index)


@case(wanted=1.0, dim=[0, 1])
def scatter_add(torch, device, dim):
    """x.scatter_add(dim, index, values), into a fresh copy."""
    x, values = torch.randn(N, N, device=device), torch.randn(N, N, device=device)
    index = torch.randint(0, N, (N, N), device=device)
    return lambda: x.scatter_add(dim, index, values)


@case(wanted=1.0)
def read_mask(torch, device):
    """x[mask], half of it true at random."""
    x, mask = torch.randn(N, N, device=device), torch.randn(N, N, device=device) > 0
    return lambda: x[mask]


@case(wanted=1.0)
def write_mask(torch, device):
    """x[mask] = 0."""
    x, mask = torch.randn(N, N, device=device), torch.randn(N, N, device=device) > 0

    def write():
        x[mask] = 0.0

    return write


def lookups(torch, device):
    return torch.randint(0, ROWS, (LOOKUPS,), device=device)
