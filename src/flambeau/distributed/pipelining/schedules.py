"""torch.distributed.pipelining.schedules: in which order micro-batches pass. To be imported."""

from __future__ import annotations

from enum import Enum

from flambeau import import_only
from flambeau.distributed.pipelining.why import WHY

__all__ = import_only.fill(
    __name__,
    WHY,
    classes="""PipelineScheduleMulti PipelineScheduleSingle Schedule1F1B ScheduleDualPipeV ScheduleGPipe ScheduleInterleaved1F1B
    ScheduleInterleavedZeroBubble ScheduleLoopedBFS ScheduleZBVZeroBubble _Action _PipelineContext _PipelineSchedule _PipelineScheduleRuntime""",
    functions="_wait_batch_p2p get_schedule_class",
)


class _ComputationType(Enum):
    """The words of which schedules are written."""

    FORWARD = "F"
    BACKWARD_INPUT = "I"
    BACKWARD_WEIGHT = "W"
    UNSHARD = "UNSHARD"
    RESHARD = "RESHARD"
    SEND_F = "SEND_F"
    RECV_F = "RECV_F"
    SEND_B = "SEND_B"
    RECV_B = "RECV_B"
    FULL_BACKWARD = "B"
    OVERLAP_F_B = "OVERLAP_F_B"
    REDUCE_GRAD = "REDUCE_GRAD"


globals().update(_ComputationType.__members__)
