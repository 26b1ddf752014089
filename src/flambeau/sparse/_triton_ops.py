"""torch.sparse._triton_ops: kernels for sparse matrices of blocks, which are not here."""

from __future__ import annotations

from flambeau import import_only

WHY = "Flambeau has no kernels in Triton for sparse matrices of blocks. Products with them are operators: dense @ bsr, torch.addmm"
import_only.fill(
    __name__,
    WHY,
    functions="broadcast_batch_dims bsr_dense_addmm bsr_dense_mm launch_kernel prepare_inputs ptr_stride_extractor tile_to_blocksize",
)
