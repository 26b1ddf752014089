"""torch.distributed.pipelining: a model's layers on several processes, through which micro-batches pass. The names can be imported, not used."""

from __future__ import annotations

from flambeau import import_only

__all__ = [
    "Pipe",
    "PipelineStage",
    "Schedule1F1B",
    "ScheduleGPipe",
    "ScheduleInterleaved1F1B",
    "SplitPoint",
    "build_stage",
    "pipe_split",
    "pipeline",
]

WHY = "there is no pipeline of processes here. DistributedDataParallel, fully_shard and parallelize_module divide a model's work among them"

Pipe, PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B, SplitPoint = import_only.classes(
    "torch.distributed.pipelining", "Pipe PipelineStage Schedule1F1B ScheduleGPipe ScheduleInterleaved1F1B SplitPoint", WHY
)
build_stage, pipe_split, pipeline = import_only.functions("torch.distributed.pipelining", "build_stage pipe_split pipeline", WHY)
