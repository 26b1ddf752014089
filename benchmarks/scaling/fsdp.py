"""fully_shard: every rank keeps its part of the parameters, and has whole blocks only while it computes with them.

    compute  |          | block 0 | block 1 | block 2 | ...  backward  | block 2 | block 1 | block 0 |           | update |
    link     | gather 0 | gather 1 | gather 2 | ...  | gather 2 | gather 1 | scatter 2 | gather 0 | scatter 1 | scatter 0 |

A block is gathered while the one before it is computed, never earlier: at most two are whole. What is not in a block (embeddings, the last
norm, the head) is gathered first, and stays whole until its gradients are summed at the end. Of the optimizer's work, too, every rank has
its part only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.scaling.models import Layer, Model, count
from benchmarks.scaling.step import Pace, Step, timed
from benchmarks.scaling.timeline import Job

KEPT = 16  # bytes of a parameter that are divided among the ranks: itself, its gradient, Adam's two averages, in float32
GATHERED, REDUCED = 2, 4  # MixedPrecisionPolicy(param_dtype=bfloat16, reduce_dtype=float32)


def step(model: Model, pace: Pace, all_gather: Callable[[float], float], ranks: int, prefetch: int = 1) -> Step:
    """`all_gather` gives the seconds of so many bytes, gathered or, which takes as long, summed and scattered."""
    return timed(jobs(model, pace, all_gather, ranks, prefetch))


def jobs(model: Model, pace: Pace, all_gather: Callable[[float], float], ranks: int, prefetch: int = 1) -> list[Job]:
    """Forward and backward, unit by unit, with a gather before and a scatter after each; `prefetch` blocks are gathered ahead."""
    made: list[Job] = []
    computed: list[Job] = []  # in their order: each waits for the one before it

    def job(name: str, resource: str, seconds: float, *after: Job) -> Job:
        made.append(Job(name, resource, seconds, after))
        return made[-1]

    def gather(layers: Sequence[Layer], *after: Job) -> Job:
        return job("gather", "link", all_gather(GATHERED * count(layers)), *after)

    def ahead(layers: Sequence[Layer]) -> Job:
        """Gathered when the block that has to make room for it is done."""
        return gather(layers, *computed[: len(computed) - prefetch][-1:])

    def scatter(layers: Sequence[Layer]) -> Job:
        return job("scatter", "link", all_gather(REDUCED * count(layers)), computed[-1])

    def compute(name: str, layers: Sequence[Layer], seconds: Callable[[Layer], float], *after: Job) -> None:
        computed.append(job(name, "compute", sum(map(seconds, layers)), *after, *computed[-1:]))

    rest = [*model.start, *model.finish]
    compute("forward", model.start, pace.forward, gather(rest))
    for block in model.blocks:
        compute("forward", block, pace.forward, ahead(block))
    compute("forward", model.finish, pace.forward)
    compute("backward", model.finish, pace.backward)
    for block in reversed(model.blocks):
        compute("backward", block, pace.backward, ahead(block))
        scatter(block)
    compute("backward", model.start, pace.backward)
    job("update", "compute", pace.update(model.parameters / ranks), scatter(rest))
    return made


def memory(model: Model, ranks: int) -> float:
    """Bytes on a rank, at most: its part of what is kept; two blocks and the rest whole; gradients of the rest and of a block, and their sum's copy.

    Activations come on top.
    """
    rest = count([*model.start, *model.finish])
    block = max(map(count, model.blocks), default=0)
    whole = GATHERED * (rest + 2 * block) + GATHERED * (rest + block) + REDUCED * max(rest, block)
    return kept(model.parameters, ranks) + whole


def kept(parameters: int, ranks: int) -> float:
    """Bytes on a rank between two steps."""
    return KEPT * parameters / ranks
