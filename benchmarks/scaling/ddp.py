"""DistributedDataParallel: every rank has the whole model; gradients are summed bucket by bucket while backward goes on.

compute  | forward ......... | backward: head | blocks, last to first ........ | embeddings |              | update |
link                                  | bucket 0 | bucket 1 | bucket 2 |                    | bucket 3 |
                                                                                            ^^^^^^^^^^^^^^ exposed
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.scaling.buckets import FIRST, OTHERS, assign
from benchmarks.scaling.models import Layer, count
from benchmarks.scaling.step import Pace, Step, timed
from benchmarks.scaling.timeline import Job

NUMBER = 4  # bytes of a parameter, of its gradient, and of each of Adam's two averages: float32


def step(layers: Sequence[Layer], pace: Pace, all_reduce: Callable[[float], float], bucket: int | None = None) -> Step:
    """`layers` in the order of forward; `all_reduce` gives the seconds of so many bytes, `bucket` is bucket_cap_mb in bytes."""
    return timed(jobs(layers, pace, all_reduce, bucket))


def jobs(layers: Sequence[Layer], pace: Pace, all_reduce: Callable[[float], float], bucket: int | None = None) -> list[Job]:
    """Forward, backward layer by layer, a job on the link for each bucket, when the last of its gradients is there, and the update."""
    first, others = (FIRST, OTHERS) if bucket is None else (bucket, bucket)  # who chooses the size chooses that of the first one too
    forward = Job("forward", "compute", sum(map(pace.forward, layers)))
    backward: dict[int, Job] = {}
    before = forward
    for number in reversed(range(len(layers))):
        before = backward[number] = Job("backward", "compute", pace.backward(layers[number]), [before])
    sizes = [NUMBER * numbers for layer in layers for numbers in layer.parameters]
    owners = [number for number, layer in enumerate(layers) for _ in layer.parameters]
    sent: list[Job] = []
    for indices in assign(sizes, first, others):
        size = sum(sizes[index] for index in indices)
        needed = [backward[min(owners[index] for index in indices)], *sent[-1:]]  # the buckets go in their order on all ranks
        sent.append(Job(f"bucket {len(sent)}", "link", all_reduce(size), needed))
    update = Job("update", "compute", pace.update(count(layers)), [before, *sent])
    return [forward, *backward.values(), *sent, update]


def memory(parameters: int) -> int:
    """Bytes on a rank: parameters, gradients, Adam's two averages. Activations and the buckets' copies come on top."""
    return 4 * NUMBER * parameters
