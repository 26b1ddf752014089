"""torch.distributed.pipelining.stage: the layers of one process. To be imported."""

from __future__ import annotations

from flambeau import import_only
from flambeau.distributed.pipelining.why import WHY

__all__ = ["PipelineStage", "build_stage"]

PipelineStage, _PipelineStageBase = import_only.classes("torch.distributed.pipelining", "PipelineStage _PipelineStageBase", WHY)
build_stage, _normalize_model_output_as_tuple = import_only.functions(
    "torch.distributed.pipelining", "build_stage _normalize_model_output_as_tuple", WHY
)
