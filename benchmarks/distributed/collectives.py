"""Communication alone, from one number to 64 MB. The size is what each rank passes in; of float32, and in memory touched before."""

from __future__ import annotations

from benchmarks.distributed.cases import case

SIZES = {"4 B": 1, "4 KB": 1 << 10, "4 MB": 1 << 20, "64 MB": 1 << 24}  # in elements
FROM_4_KB = list(SIZES)[1:]  # halves of one number are none


def filled(torch, *shape):
    return torch.zeros(*shape).fill_(0.0)  # zeros stay zeros however often they are summed, and written pages are real ones


@case(wanted=0.7, size=FROM_4_KB)
@case(wanted=0.5, size="4 B")
def all_reduce(torch, device, size):
    """Sum in place."""
    x = filled(torch, SIZES[size])
    return lambda: torch.distributed.all_reduce(x)


@case(wanted=None, size=list(SIZES))
def broadcast(torch, device, size):
    """From rank 0."""
    x = filled(torch, SIZES[size])
    return lambda: torch.distributed.broadcast(x, src=0)


@case(wanted=None, size=list(SIZES))
def all_gather(torch, device, size):
    """all_gather_into_tensor: the output is as many times this size as there are ranks."""
    x = filled(torch, SIZES[size])
    out = filled(torch, torch.distributed.get_world_size() * len(x))
    return lambda: torch.distributed.all_gather_into_tensor(out, x)


@case(wanted=None, size=FROM_4_KB)
def reduce_scatter(torch, device, size):
    """reduce_scatter_tensor: every rank keeps its part of the sum."""
    x = filled(torch, SIZES[size])
    out = filled(torch, len(x) // torch.distributed.get_world_size())
    return lambda: torch.distributed.reduce_scatter_tensor(out, x)


@case(wanted=None, size=list(SIZES))
def send_recv(torch, device, size):
    """From rank 0 to rank 1 and back."""
    dist, x = torch.distributed, filled(torch, SIZES[size])

    def there_and_back():
        if dist.get_rank() == 0:
            dist.send(x, dst=1)
            dist.recv(x, src=1)
        else:
            dist.recv(x, src=0)
            dist.send(x, dst=0)

    return there_and_back


@case(wanted=None)
def barrier(torch, device):
    """Everyone waits for everyone."""
    return torch.distributed.barrier
