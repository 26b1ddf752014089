"""A step of training as the simulator sees it: how long it computes, and how much longer sending makes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.scaling.figures import GPU, UTILIZATION
from benchmarks.scaling.models import Layer, Model
from benchmarks.scaling.timeline import Job, play

ADAM = 28  # bytes that an update of a float32 parameter moves: reads it, its gradient and two averages, writes all but the gradient


@dataclass(frozen=True)
class Step:
    """What the timeline of `jobs` says, in seconds: when the last one ends, and for how long each resource is busy."""

    jobs: Sequence[Job]
    total: float
    computing: float
    sending: float

    @property
    def exposed(self) -> float:
        """What of the sending makes the step longer."""
        return self.total - self.computing

    @property
    def hidden(self) -> float:
        """The part of the sending that does not."""
        return 1 - self.exposed / self.sending if self.sending else 1.0

    @property
    def efficiency(self) -> float:
        """The part of the step in which the GPU computes."""
        return self.computing / self.total


@dataclass(frozen=True)
class Pace:
    """How fast a rank computes."""

    tokens: int  # on this rank, in a step
    flops: float  # a second
    bandwidth: float  # of its memory

    def forward(self, layer: Layer) -> float:
        return layer.flops * self.tokens / self.flops

    def backward(self, layer: Layer) -> float:
        return 2 * self.forward(layer)

    def update(self, parameters: float) -> float:
        return ADAM * parameters / self.bandwidth


def pace(model: Model, gpu: GPU, batch: int | None = None, utilization: float = UTILIZATION) -> Pace:
    """Of `batch` sequences on a GPU."""
    return Pace((batch or model.batch) * model.tokens, gpu.peak * utilization, gpu.bandwidth)


def timed(jobs: Sequence[Job]) -> Step:
    """The step that these jobs make, on "compute" and on "link"."""
    total = play(jobs)
    computing, sending = (sum(job.seconds for job in jobs if job.resource == resource) for resource in ("compute", "link"))
    return Step(jobs, total, computing, sending)
