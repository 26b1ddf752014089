"""torch.distributed.pipelining.microbatch: cutting batches. To be imported."""

from __future__ import annotations

from flambeau import import_only
from flambeau.distributed.pipelining.why import WHY

__all__ = import_only.fill(
    __name__, WHY, classes="TensorChunkSpec", functions="_split_block_mask merge_chunks split_args_kwargs_into_chunks"
)
