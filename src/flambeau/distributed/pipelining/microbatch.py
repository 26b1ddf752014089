"""torch.distributed.pipelining.microbatch: cutting batches. To be imported."""

from __future__ import annotations

from flambeau import import_only
from flambeau.distributed.pipelining.why import WHY

__all__ = ["TensorChunkSpec", "merge_chunks", "split_args_kwargs_into_chunks"]

(TensorChunkSpec,) = import_only.classes("torch.distributed.pipelining.microbatch", "TensorChunkSpec", WHY)
_split_block_mask, merge_chunks, split_args_kwargs_into_chunks = import_only.functions(
    "torch.distributed.pipelining.microbatch", "_split_block_mask merge_chunks split_args_kwargs_into_chunks", WHY
)
