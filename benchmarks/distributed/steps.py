"""Whole steps of training on two ranks: DistributedDataParallel, what of its communication shows, and fully_shard.

The models are those of benchmarks/cases/training.py, with their batch on every rank.
"""

from __future__ import annotations

from time import perf_counter

from benchmarks.cases.training import gpt, mlp, stepping
from benchmarks.distributed.cases import case, probe
from benchmarks.distributed.memory import sharded
from benchmarks.scaling.buckets import assign

TURNS = 24  # of each kind of step in one reading of what is exposed; the quickest counts


def mlp_job(torch, wrap):
    """The MLP inside `wrap`, and a step of it: a batch of 64, Adam."""
    torch.manual_seed(0)
    model = wrap(mlp(torch))
    x, y = torch.randn(64, 784), torch.randint(0, 10, (64,))
    loss_of = lambda model: torch.nn.functional.cross_entropy(model(x), y)  # noqa: E731
    return model, stepping(model, torch.optim.Adam(model.parameters(), lr=1e-3), loss_of)


def gpt_job(torch, wrap):
    """The GPT inside `wrap`, and a step of it: a batch of 12 x 64 characters, AdamW, gradients clipped."""
    torch.manual_seed(0)
    model = wrap(gpt(torch, vocabulary=65, block=64))
    x, y = (torch.randint(0, 65, (12, 64)) for _ in range(2))
    loss_of = lambda model: torch.nn.functional.cross_entropy(model(x).view(-1, 65), y.view(-1))  # noqa: E731
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return model, stepping(model, optimizer, loss_of, clip=torch.nn.utils.clip_grad_norm_)


JOBS = {"mlp": mlp_job, "gpt": gpt_job}


def communication(torch, model):
    """The all-reduces of a DDP step and nothing else: a flat tensor for every bucket."""
    sizes = [4 * p.numel() for p in model.parameters()]
    flat = [torch.zeros(sum(sizes[i] for i in bucket) // 4) for bucket in assign(sizes)]

    def exchange():
        works = [torch.distributed.all_reduce(bucket, async_op=True) for bucket in flat]
        for work in works:
            work.wait()

    return exchange


def without_sync(model, step):
    def alone():
        with model.no_sync():
            return step()

    return alone


@case(wanted=0.6, model=list(JOBS))
def ddp(torch, device, model):
    """A step under DistributedDataParallel: a batch of 64 for the MLP, of 12 x 64 characters for the GPT."""
    return JOBS[model](torch, torch.nn.parallel.DistributedDataParallel)[1]


@case(wanted=None, model=list(JOBS))
def no_sync(torch, device, model):
    """The same step inside no_sync()."""
    return without_sync(*JOBS[model](torch, torch.nn.parallel.DistributedDataParallel))


@case(wanted=None, model=list(JOBS))
def allreduce_only(torch, device, model):
    """The same step's all-reduces, and nothing else."""
    return communication(torch, JOBS[model](torch, lambda model: model)[0])


@probe(wanted=None, limit=40.0, unit="%")
def exposed(torch, device):
    """Share of the GPT step's communication that makes the step longer: (with DDP - in no_sync) / communication alone."""
    model, step = gpt_job(torch, torch.nn.parallel.DistributedDataParallel)
    kinds = step, without_sync(model, step), communication(torch, model)

    def read():
        quickest = [min(times) for times in zip(*[[seconds(torch, call) for call in kinds] for _ in range(TURNS)], strict=True)]
        slower = torch.tensor(quickest, dtype=torch.float64)
        torch.distributed.all_reduce(slower, op=torch.distributed.ReduceOp.MAX)  # the other rank's lead is no communication
        together, alone, sending = slower.tolist()
        return max(0.0, 100 * (together - alone) / sending)

    return read


@probe(wanted=None)
def tail(torch, device):
    """From the moment when backward of the GPT has nothing left to compute to the one when all averages are there, by DDP's own clock."""
    model, step = gpt_job(torch, torch.nn.parallel.DistributedDataParallel)
    model._set_ddp_runtime_logging_sample_rate(1)
    for _ in range(2):  # the buckets have their final order from the second step on
        step()

    def read():
        step()
        times = model._get_ddp_logging_data()
        return (times["backward_comm_time"] - times["backward_compute_comm_overlap_time"]) * 1e-9

    return read


def seconds(torch, call):
    """Of one call, that all ranks begin together."""
    torch.distributed.barrier()
    start = perf_counter()
    call()
    return perf_counter() - start


@case(wanted=None)
def fsdp(torch, device):
    """A step of the GPT under fully_shard."""
    return gpt_job(torch, sharded(torch))[1]
