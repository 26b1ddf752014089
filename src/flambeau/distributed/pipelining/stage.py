"""torch.distributed.pipelining.stage: the layers of one process. To be imported."""

from __future__ import annotations

from flambeau import import_only
from flambeau.distributed.pipelining.why import WHY

__all__ = import_only.fill(
    __name__,
    WHY,
    classes="PipelineStage _PipelineStageBase",
    functions="build_stage _normalize_model_output_as_tuple",
    of="torch.distributed.pipelining",
)
