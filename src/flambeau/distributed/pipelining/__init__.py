"""torch.distributed.pipelining: a model's layers on several processes, through which micro-batches pass. The names can be imported, not used."""

from __future__ import annotations

from enum import Enum

from flambeau import import_only
from flambeau.distributed.pipelining.why import WHY
from flambeau.doors import door

__getattr__, __dir__, __all__ = door(__name__, {
    "schedules": """Schedule1F1B ScheduleDualPipeV ScheduleGPipe ScheduleInterleaved1F1B ScheduleInterleavedZeroBubble ScheduleLoopedBFS
        ScheduleZBVZeroBubble""",
    "stage": "PipelineStage build_stage",
})  # fmt: skip
__all__ += ["SplitPoint", *import_only.fill(__name__, WHY, classes="Pipe", functions="pipe_split pipeline")]


class SplitPoint(Enum):
    """Where a model is cut: before a layer, or behind it."""

    BEGINNING = 1
    END = 2
