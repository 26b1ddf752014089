"""torch.distributed._symmetric_memory: memory of one GPU that kernels of another one read and write. There is none here; the names can be imported."""

from __future__ import annotations

from flambeau import import_only

__all__ = import_only.fill(
    __name__,
    "GPUs share no memory here. Collectives of the nccl backend move tensors between them",
    functions="empty enable_symm_mem_for_group get_backend get_mem_pool get_symm_mem_workspace rendezvous set_backend",
)
__all__ += ["is_nvshmem_available", "is_symm_mem_enabled_for_group"]


def is_nvshmem_available() -> bool:
    """Whether NVSHMEM is there: no."""
    return False


def is_symm_mem_enabled_for_group(group_name: str) -> bool:
    """Whether a group's GPUs share memory: no."""
    return False
