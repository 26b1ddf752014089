"""torch.distributed.pipelining: a model's layers on several processes, through which micro-batches pass. The names can be imported, not used."""

from __future__ import annotations

from enum import Enum

from flambeau import import_only
from flambeau.distributed.pipelining.schedules import (
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
)
from flambeau.distributed.pipelining.stage import PipelineStage, build_stage
from flambeau.distributed.pipelining.why import WHY

__all__ = [
    "Pipe", "PipelineStage", "Schedule1F1B", "ScheduleDualPipeV", "ScheduleGPipe", "ScheduleInterleaved1F1B",
    "ScheduleInterleavedZeroBubble", "ScheduleLoopedBFS", "ScheduleZBVZeroBubble", "SplitPoint", "build_stage", "pipe_split", "pipeline",
]  # fmt: skip

(Pipe,) = import_only.classes("torch.distributed.pipelining", "Pipe", WHY)
pipe_split, pipeline = import_only.functions("torch.distributed.pipelining", "pipe_split pipeline", WHY)


class SplitPoint(Enum):
    """Where a model is cut: before a layer, or behind it."""

    BEGINNING = 1
    END = 2
