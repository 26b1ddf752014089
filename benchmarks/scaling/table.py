"""What the simulator prints: all-reduces alone, then a step with DistributedDataParallel and with fully_shard, for each number of GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from benchmarks.report import amount
from benchmarks.scaling import ddp, fsdp
from benchmarks.scaling.collectives import ALL_REDUCE, lap, ring, tree
from benchmarks.scaling.figures import GPU, Cluster
from benchmarks.scaling.models import Model
from benchmarks.scaling.step import Pace, Step

SIZES = [4, 4 << 10, 1 << 20, 25 << 20, 1 << 30]  # bytes
HEADING = ["GPUs", "step", "tokens/s", "computing", "sending", "exposed", "hidden", "memory"]


def collectives(counts: Sequence[int], cluster: Cluster) -> Iterator[str]:
    """Ring and tree, for each size and number of GPUs."""
    yield "all_reduce by ring, by tree"
    yield row(["GPUs", *map(binary, SIZES)], 20)
    for ranks in counts:
        pairs = (f"{amount(ring(size, ranks, cluster), 's')}, {amount(tree(size, ranks, cluster), 's')}" for size in SIZES)
        yield row([f"{ranks:,}", *pairs], 20)


def data_parallel(
    counts: Sequence[int], model: Model, gpu: GPU, cluster: Cluster, pace: Pace, bucket: int | None, by: str
) -> Iterator[str]:
    """DistributedDataParallel."""
    memory = ddp.memory(model.parameters)
    yield row(HEADING)
    for ranks in counts:
        step = ddp.step(model.layers, pace, at(ALL_REDUCE[by], ranks, cluster), bucket)
        yield row(cells(ranks, step, pace, memory, gpu))


def sharded(counts: Sequence[int], model: Model, gpu: GPU, cluster: Cluster, pace: Pace, prefetch: int) -> Iterator[str]:
    """fully_shard."""
    yield row(HEADING)
    for ranks in counts:
        step = fsdp.step(model, pace, at(lap, ranks, cluster), ranks, prefetch)
        yield row(cells(ranks, step, pace, fsdp.memory(model, ranks), gpu))


def at(collective: Callable[[float, int, Cluster], float], ranks: int, cluster: Cluster) -> Callable[[float], float]:
    """Its seconds by size alone."""
    return lambda size: collective(size, ranks, cluster)


def cells(ranks: int, step: Step, pace: Pace, memory: float, gpu: GPU) -> list[str]:
    """A line of the table. The memory that a GPU has not got is marked."""
    return [
        f"{ranks:,}",
        amount(step.total, "s"),
        thousands(ranks * pace.tokens / step.total),
        f"{100 * step.efficiency:.1f} %",
        amount(step.sending, "s"),
        amount(step.exposed, "s"),
        f"{100 * step.hidden:.0f} %",
        amount(memory, "B") + (" !" if memory > gpu.memory else "  "),
    ]


def row(texts: Sequence[str], width: int = 11) -> str:
    """Right under right."""
    first, *others = texts
    return (f"{first:>5}" + "".join(f"{text:>{width}}" for text in others)).rstrip()


def binary(size: int) -> str:
    """Bytes in powers of 1,024.

    >>> binary(25 << 20)
    '25 MiB'
    """
    for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << shift:
            return f"{size >> shift} {unit}"
    return f"{size} B"


def thousands(number: float) -> str:
    """Three digits and a unit.

    >>> thousands(123_456_789)
    '123 M'
    """
    for step, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= step:
            return f"{number / step:.3g} {unit}"
    return f"{number:.3g}"
