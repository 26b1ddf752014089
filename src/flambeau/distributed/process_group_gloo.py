"""PyTorch's engines by name: programs ask `isinstance(backend, ProcessGroupGloo)`, and nothing here is one.

Ours are made by init_process_group and new_group.
"""

from __future__ import annotations

from flambeau import import_only

__all__ = ["ProcessGroupGloo", "ProcessGroupMPI", "ProcessGroupNCCL"]

ProcessGroupGloo, ProcessGroupMPI, ProcessGroupNCCL, _Backend = import_only.classes(
    "torch.distributed",
    "ProcessGroupGloo ProcessGroupMPI ProcessGroupNCCL _Backend",
    'the engines here are MPI and NCCL, and init_process_group("gloo"), ("mpi") or ("nccl") makes their groups',
)
