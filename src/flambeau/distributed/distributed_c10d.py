"""torch.distributed.distributed_c10d: the functions of torch.distributed under the name of PyTorch's file, and what programs import from there besides.

>>> from flambeau import distributed
>>> all_reduce is distributed.all_reduce
True
"""

from __future__ import annotations

import logging
import pickle
from typing import Any

from flambeau.distributed import is_torchelastic_launched, reduce_op
from flambeau.distributed.backends import (
    Backend,
    BackendConfig,
    get_default_backend_for_device,
    is_backend_available,
    is_gloo_available,
    is_mpi_available,
    is_nccl_available,
    is_ucc_available,
    is_xccl_available,
)
from flambeau.distributed.c10d_logger import _exception_logger as _exception_logger
from flambeau.distributed.c10d_logger import _time_logger as _time_logger
from flambeau.distributed.collectives.all_gather import _all_gather_base as _all_gather_base
from flambeau.distributed.collectives.all_gather import all_gather, all_gather_coalesced, all_gather_into_tensor, all_gather_single
from flambeau.distributed.collectives.all_reduce import all_reduce, all_reduce_coalesced
from flambeau.distributed.collectives.all_to_all import all_to_all, all_to_all_single
from flambeau.distributed.collectives.barrier import barrier, monitored_barrier
from flambeau.distributed.collectives.broadcast import broadcast
from flambeau.distributed.collectives.checks import _check_single_tensor as _check_single_tensor
from flambeau.distributed.collectives.checks import _check_tensor_list as _check_tensor_list
from flambeau.distributed.collectives.checks import _ensure_all_tensors_same_dtype as _ensure_all_tensors_same_dtype
from flambeau.distributed.collectives.checks import supports_complex
from flambeau.distributed.collectives.coalescing import _coalescing_manager as _coalescing_manager
from flambeau.distributed.collectives.coalescing import _CoalescingManager as _CoalescingManager
from flambeau.distributed.collectives.coalescing import _CollOp as _CollOp
from flambeau.distributed.collectives.coalescing import _IllegalWork as _IllegalWork
from flambeau.distributed.collectives.gather import _validate_output_list_for_rank as _validate_output_list_for_rank
from flambeau.distributed.collectives.gather import gather
from flambeau.distributed.collectives.initialize import _abort_process_group as _abort_process_group
from flambeau.distributed.collectives.initialize import _get_default_timeout as _get_default_timeout
from flambeau.distributed.collectives.initialize import destroy_process_group, init_process_group
from flambeau.distributed.collectives.point_to_point import P2POp, batch_isend_irecv, irecv, isend, recv, send
from flambeau.distributed.collectives.point_to_point import _check_op as _check_op
from flambeau.distributed.collectives.point_to_point import _check_p2p_op_list as _check_p2p_op_list
from flambeau.distributed.collectives.ranks import _canonicalize_group_rank as _canonicalize_group_rank
from flambeau.distributed.collectives.ranks import _check_not_self_rank as _check_not_self_rank
from flambeau.distributed.collectives.ranks import _get_global_rank as _get_global_rank
from flambeau.distributed.collectives.ranks import _get_group_size as _get_group_size
from flambeau.distributed.collectives.ranks import (
    get_global_rank,
    get_group_rank,
    get_node_local_rank,
    get_process_group_ranks,
    get_rank,
    get_world_size,
)
from flambeau.distributed.collectives.reduce import reduce
from flambeau.distributed.collectives.reduce_scatter import _reduce_scatter_base as _reduce_scatter_base
from flambeau.distributed.collectives.reduce_scatter import reduce_scatter, reduce_scatter_single, reduce_scatter_tensor
from flambeau.distributed.collectives.registry import (
    _find_or_create_pg_by_ranks_and_tag as _find_or_create_pg_by_ranks_and_tag,
)
from flambeau.distributed.collectives.registry import _find_pg_by_ranks_and_tag as _find_pg_by_ranks_and_tag
from flambeau.distributed.collectives.registry import _get_all_pg_configs as _get_all_pg_configs
from flambeau.distributed.collectives.registry import _get_default_store as _get_default_store
from flambeau.distributed.collectives.registry import _get_group_size_by_name as _get_group_size_by_name
from flambeau.distributed.collectives.registry import _get_group_tag as _get_group_tag
from flambeau.distributed.collectives.registry import _get_pg_config as _get_pg_config
from flambeau.distributed.collectives.registry import _get_process_group_name as _get_process_group_name
from flambeau.distributed.collectives.registry import _get_process_group_store as _get_process_group_store
from flambeau.distributed.collectives.registry import _get_process_group_uid as _get_process_group_uid
from flambeau.distributed.collectives.registry import _hash_ranks_to_str as _hash_ranks_to_str
from flambeau.distributed.collectives.registry import _register_process_group as _register_process_group
from flambeau.distributed.collectives.registry import _resolve_group_name_by_ranks_and_tag as _resolve_group_name_by_ranks_and_tag
from flambeau.distributed.collectives.registry import _resolve_process_group as _resolve_process_group
from flambeau.distributed.collectives.registry import _unregister_all_process_groups as _unregister_all_process_groups
from flambeau.distributed.collectives.registry import _unregister_process_group as _unregister_process_group
from flambeau.distributed.collectives.registry import get_backend, get_backend_config, get_pg_count
from flambeau.distributed.collectives.scatter import scatter
from flambeau.distributed.collectives.subgroups import SHRINK_ABORT as SHRINK_ABORT
from flambeau.distributed.collectives.subgroups import SHRINK_DEFAULT as SHRINK_DEFAULT
from flambeau.distributed.collectives.subgroups import _new_group_with_tag as _new_group_with_tag
from flambeau.distributed.collectives.subgroups import (
    new_group,
    new_subgroups,
    new_subgroups_by_enumeration,
    shrink_group,
    split_group,
)
from flambeau.distributed.collectives.world import GroupMember, GroupName, group, is_initialized
from flambeau.distributed.collectives.world import _check_valid_timeout as _check_valid_timeout
from flambeau.distributed.collectives.world import _device_capability as _device_capability
from flambeau.distributed.collectives.world import _get_default_group as _get_default_group
from flambeau.distributed.collectives.world import _get_object_coll_device as _get_object_coll_device
from flambeau.distributed.collectives.world import _get_pg_default_device as _get_pg_default_device
from flambeau.distributed.collectives.world import _group_or_default_group as _group_or_default_group
from flambeau.distributed.collectives.world import _rank_not_in_group as _rank_not_in_group
from flambeau.distributed.collectives.world import _set_pg_timeout as _set_pg_timeout
from flambeau.distributed.collectives.world import _update_default_pg as _update_default_pg
from flambeau.distributed.collectives.world import _warn_not_in_group as _warn_not_in_group
from flambeau.distributed.collectives.world import _World as _World
from flambeau.distributed.collectives.world import _world as _world
from flambeau.distributed.constants import default_pg_nccl_timeout as default_pg_nccl_timeout
from flambeau.distributed.constants import default_pg_timeout
from flambeau.distributed.debug_level import DebugLevel, get_debug_level
from flambeau.distributed.errors import DistStoreError as DistStoreError
from flambeau.distributed.groups import ProcessGroup, Work
from flambeau.distributed.objects import _object_to_tensor as _object_to_tensor
from flambeau.distributed.objects import _tensor_to_object as _tensor_to_object
from flambeau.distributed.objects import (
    all_gather_object,
    broadcast_object_list,
    gather_object,
    recv_object_list,
    scatter_object_list,
    send_object_list,
)
from flambeau.distributed.options import AllgatherOptions as AllgatherOptions
from flambeau.distributed.options import (
    AllreduceCoalescedOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    GatherOptions,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
)
from flambeau.distributed.options import _DistributedBackendOptions as _DistributedBackendOptions
from flambeau.distributed.process_group_gloo import ProcessGroupGloo
from flambeau.distributed.process_group_gloo import _ProcessGroupWrapper as _ProcessGroupWrapper
from flambeau.distributed.profiling_names import record_comm
from flambeau.distributed.reduce_op import ReduceOp
from flambeau.distributed.rendezvous import register_rendezvous_handler as register_rendezvous_handler
from flambeau.distributed.rendezvous import rendezvous as rendezvous
from flambeau.distributed.stores import PrefixStore, Store

__all__ = [
    "AllToAllOptions", "AllreduceCoalescedOptions", "AllreduceOptions", "Backend", "BackendConfig", "BarrierOptions", "BroadcastOptions",
    "DebugLevel", "GatherOptions", "GroupMember", "GroupName", "P2POp", "PrefixStore", "ProcessGroup", "ProcessGroupGloo", "ReduceOp",
    "ReduceOptions", "ReduceScatterOptions", "ScatterOptions", "Store", "Work", "all_gather", "all_gather_coalesced", "all_gather_into_tensor",
    "all_gather_object", "all_gather_single", "all_reduce", "all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier",
    "batch_isend_irecv", "broadcast", "broadcast_object_list", "default_pg_timeout", "destroy_process_group", "gather", "gather_object",
    "get_backend", "get_backend_config", "get_debug_level", "get_default_backend_for_device", "get_global_rank", "get_group_rank",
    "get_node_local_rank", "get_pg_count", "get_process_group_ranks", "get_rank", "get_world_size", "group", "init_process_group", "irecv",
    "is_backend_available", "is_gloo_available", "is_initialized", "is_mpi_available", "is_nccl_available", "is_torchelastic_launched",
    "is_ucc_available", "is_xccl_available", "isend", "monitored_barrier", "new_group", "new_subgroups", "new_subgroups_by_enumeration",
    "record_comm", "recv", "recv_object_list", "reduce", "reduce_op", "reduce_scatter", "reduce_scatter_single", "reduce_scatter_tensor",
    "scatter", "scatter_object_list", "send", "send_object_list", "shrink_group", "split_group", "supports_complex",
]  # fmt: skip

STORE_BASED_BARRIER_PREFIX = "store_based_barrier_key"
PG_WRAPPER_STORE_PREFIX = "pg_wrapper"
logger = logging.getLogger(__name__)
_pickler, _unpickler = pickle.Pickler, pickle.Unpickler

_AVAILABLE = {
    "_GLOO_AVAILABLE": is_gloo_available,
    "_MPI_AVAILABLE": is_mpi_available,
    "_NCCL_AVAILABLE": is_nccl_available,
    "_UCC_AVAILABLE": is_ucc_available,
    "_XCCL_AVAILABLE": is_xccl_available,
}
_TABLES = {
    "_backend": lambda: "undefined" if _world.default_pg is None else get_backend(),
    "_default_pg_init_method": lambda: None,
    "_group_count": lambda: _world.group_count,
    "_pg_backend_config": lambda: _world.pg_backend_config,
    "_pg_group_ranks": lambda: _world.pg_group_ranks,
    "_pg_map": lambda: _world.pg_map,
    "_pg_names": lambda: _world.pg_names,
    "_pg_to_tag": lambda: _world.pg_to_tag,
    "_tags_to_pg": lambda: _world.tags_to_pg,
    "_TORCHCOMM_AVAILABLE": lambda: False,
}


def __getattr__(name: str) -> Any:
    """What is different every time it is asked for: the tables of `_world` under their older names, and what this machine has."""
    answer = _AVAILABLE.get(name) or _TABLES.get(name)
    if answer is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return answer()
