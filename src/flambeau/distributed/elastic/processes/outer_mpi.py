"""An agent may be a rank of mpiexec or srun; its workers are not, and must not find the variables that say so.

With them, MPI in a worker would try to speak to a launcher that knows nothing of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

VARIABLES = re.compile(
    r"PMI_.*|PMIX_.*|PALS_.*|HYDI_.*|HYDRA_.*|OMPI_.*|MPIEXEC_.*|MPI_LOCAL.*|SLURM_(PROCID|LOCALID|NODEID|TASK_PID|GTIDS|STEP_.*|STEPID|STEPMGR)"
)


def without_outer_mpi(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without them.

    >>> without_outer_mpi({"PMI_RANK": "0", "SLURM_PROCID": "0", "SLURM_JOB_ID": "7", "MPIR_CVAR_DEBUG_SUMMARY": "1"})
    {'SLURM_JOB_ID': '7', 'MPIR_CVAR_DEBUG_SUMMARY': '1'}
    """
    return {name: value for name, value in environment.items() if not VARIABLES.fullmatch(name)}
