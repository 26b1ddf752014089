"""What mpiexec and srun tell a process about itself, and the same in the words of torchrun, which programs for PyTorch read."""

from __future__ import annotations

import os
from collections.abc import Mapping

# (rank, number of ranks), by the names of MPICH's mpiexec, PMIx and Slurm
NAMES = ("PMI_RANK", "PMI_SIZE"), ("PMIX_RANK", "SLURM_NTASKS"), ("SLURM_PROCID", "SLURM_NTASKS")
LOCAL_RANK = "MPI_LOCALRANKID", "SLURM_LOCALID"
LOCAL_SIZE = "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE"


def started_by_mpi(environment: Mapping[str, str] = os.environ) -> tuple[int, int] | None:
    """(rank, number of ranks) if mpiexec or srun started this process."""
    for rank, size in NAMES:
        if rank in environment and size in environment:
            return int(environment[rank]), int(environment[size])
    return None


def as_torchrun(environment: Mapping[str, str]) -> dict[str, str]:
    """RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE of a process that mpiexec or srun started; nothing if they are there, or nobody did.

    >>> as_torchrun({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"})
    {'RANK': '1', 'WORLD_SIZE': '2', 'LOCAL_RANK': '1', 'LOCAL_WORLD_SIZE': '2'}
    """
    started = started_by_mpi(environment)
    if started is None or "RANK" in environment:
        return {}
    found = {"RANK": str(started[0]), "WORLD_SIZE": str(started[1])}
    for name, theirs in (("LOCAL_RANK", LOCAL_RANK), ("LOCAL_WORLD_SIZE", LOCAL_SIZE)):
        local = next((environment[their] for their in theirs if their in environment), None)
        if local is not None:
            found[name] = local
    return found
