"""torch.distributed: programs of several processes, which compute on their own and meet in collective calls.

    init_process_group("gloo")             # every process; the launcher has told each of them its rank
    tensor = torch.ones(3) * get_rank()
    all_reduce(tensor)                     # now the same sum in all of them

This door imports a room when a name of it is first asked for: libraries import torch.distributed always, and use it rarely.

>>> is_available(), is_initialized()
(True, False)
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from flambeau.doors import door
from flambeau.ops import LIBRARIES

SHOWN = {
    "backends": """Backend BackendConfig get_default_backend_for_device is_backend_available is_gloo_available is_mpi_available
        is_nccl_available is_ucc_available is_xccl_available""",
    "c10d_logger": "_exception_logger _time_logger log",
    "collectives.all_gather": "_all_gather_base all_gather all_gather_coalesced all_gather_into_tensor all_gather_single",
    "collectives.all_reduce": "all_reduce all_reduce_coalesced",
    "collectives.all_to_all": "all_to_all all_to_all_single",
    "collectives.barrier": "barrier monitored_barrier",
    "collectives.broadcast": "broadcast",
    "collectives.checks": "supports_complex",
    "collectives.coalescing": "_CoalescingManager _coalescing_manager",
    "collectives.gather": "gather",
    "collectives.initialize": "_abort_process_group destroy_process_group init_process_group",
    "collectives.point_to_point": "P2POp batch_isend_irecv irecv isend recv send",
    "collectives.ranks": "get_global_rank get_group_rank get_node_local_rank get_process_group_ranks get_rank get_world_size",
    "collectives.reduce": "reduce",
    "collectives.reduce_scatter": "_reduce_scatter_base reduce_scatter reduce_scatter_single reduce_scatter_tensor",
    "collectives.registry": "_get_process_group_name get_backend get_backend_config get_pg_count",
    "collectives.scatter": "scatter",
    "collectives.subgroups": "new_group new_subgroups new_subgroups_by_enumeration shrink_group split_group",
    "collectives.world": "GroupMember GroupName RankType _rank_not_in_group group is_initialized",
    "constants": "default_pg_nccl_timeout default_pg_timeout",
    "data_parallel": """BuiltinCommHookType GradBucket Logger Reducer _DEFAULT_FIRST_BUCKET_BYTES _broadcast_coalesced
        _compute_bucket_assignment_by_size _register_builtin_comm_hook _register_comm_hook _verify_params_across_processes""",
    "debug_level": "DebugLevel get_debug_level set_debug_level set_debug_level_from_env",
    "device_mesh": "DeviceMesh init_device_mesh",
    "errors": "DistBackendError DistError DistNetworkError DistStoreError QueueEmptyError",
    "groups.process_group": "ProcessGroup",
    "groups.work": "Work _Work",
    "objects": """all_gather_object broadcast_object_list gather_object recv_object_list scatter_object_list send_object_list""",
    "options": """AllToAllOptions AllgatherOptions AllreduceCoalescedOptions AllreduceOptions BarrierOptions BroadcastOptions GatherOptions
        ReduceOptions ReduceScatterOptions ScatterOptions""",
    "process_group_gloo": "ProcessGroupGloo ProcessGroupMPI ProcessGroupNCCL _Backend",
    "profiling_names": "record_comm",
    "reduce_op": "ReduceOp _make_nccl_premul_sum",
    "remote_device": "_remote_device",
    "rendezvous": "register_rendezvous_handler rendezvous",
    "rank_breakpoint": "breakpoint",
    "stores": "FileStore HashStore PrefixStore Store TCPStore",
    "collectives.whereabouts": "report",
}  # fmt: skip
__getattr__, __dir__, __all__ = door(__name__, SHOWN)
__all__ = sorted(
    {*__all__, "is_available", "is_torchelastic_launched", "reduce_op"}
    - {"ProcessGroupMPI", "ProcessGroupNCCL", "RankType", "default_pg_nccl_timeout", "log", "report"}
)


def is_available() -> bool:
    """Whether there is a torch.distributed: yes. Whether its groups can start here, is_mpi_available() and is_nccl_available() say."""
    return True


def is_torchelastic_launched() -> bool:
    """Whether a launcher started this process, which it says in the environment."""
    return os.environ.get("TORCHELASTIC_RUN_ID") is not None


class _Door(ModuleType):
    """This module. Importing `torch.distributed.rendezvous` would put the module in the place of the function of that name, as imports do."""

    @property
    def rendezvous(self) -> Any:
        return __getattr__("rendezvous")

    @rendezvous.setter
    def rendezvous(self, module: ModuleType) -> None:
        """Nothing: the module is found in sys.modules."""


sys.modules[__name__].__class__ = _Door


def _library(name: str) -> Any:
    """torch.ops._c10d_functional"""
    return import_module(f"{__name__}.functional_overloads").library(name)


LIBRARIES.update(dict.fromkeys(("_c10d_functional", "_c10d_functional_autograd", "c10d", "c10d_functional"), _library))
