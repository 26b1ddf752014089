"""torch.distributed.pipelining.schedules: in which order micro-batches pass. To be imported."""

from __future__ import annotations

from enum import Enum

from flambeau import import_only
from flambeau.distributed.pipelining.why import WHY

_HERE = "torch.distributed.pipelining.schedules"

(
    PipelineScheduleMulti, PipelineScheduleSingle, Schedule1F1B, ScheduleDualPipeV, ScheduleGPipe, ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble, ScheduleLoopedBFS, ScheduleZBVZeroBubble, _Action, _PipelineContext, _PipelineSchedule,
    _PipelineScheduleRuntime,
) = import_only.classes(
    _HERE,
    """PipelineScheduleMulti PipelineScheduleSingle Schedule1F1B ScheduleDualPipeV ScheduleGPipe ScheduleInterleaved1F1B
    ScheduleInterleavedZeroBubble ScheduleLoopedBFS ScheduleZBVZeroBubble _Action _PipelineContext _PipelineSchedule _PipelineScheduleRuntime""",
    WHY,
)  # fmt: skip
_wait_batch_p2p, get_schedule_class = import_only.functions(_HERE, "_wait_batch_p2p get_schedule_class", WHY)

__all__ = [
    "PipelineScheduleMulti", "PipelineScheduleSingle", "Schedule1F1B", "ScheduleDualPipeV", "ScheduleGPipe", "ScheduleInterleaved1F1B",
    "ScheduleInterleavedZeroBubble", "ScheduleLoopedBFS", "ScheduleZBVZeroBubble", "get_schedule_class",
]  # fmt: skip


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


FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT = _ComputationType.FORWARD, _ComputationType.BACKWARD_INPUT, _ComputationType.BACKWARD_WEIGHT
UNSHARD, RESHARD, REDUCE_GRAD = _ComputationType.UNSHARD, _ComputationType.RESHARD, _ComputationType.REDUCE_GRAD
SEND_F, RECV_F, SEND_B, RECV_B = _ComputationType.SEND_F, _ComputationType.RECV_F, _ComputationType.SEND_B, _ComputationType.RECV_B
FULL_BACKWARD, OVERLAP_F_B = _ComputationType.FULL_BACKWARD, _ComputationType.OVERLAP_F_B
