"""torch.distributed.distributed_c10d: the functions of torch.distributed under the name of PyTorch's file, and what programs import from there besides.

>>> from flambeau import distributed
>>> all_reduce is distributed.all_reduce
True
"""

from __future__ import annotations

import logging
import pickle
from typing import Any

from flambeau import distributed
from flambeau.distributed import is_torchelastic_launched as is_torchelastic_launched
from flambeau.distributed import reduce_op as reduce_op
from flambeau.distributed.backends import is_gloo_available, is_mpi_available, is_nccl_available, is_ucc_available, is_xccl_available
from flambeau.distributed.collectives.registry import get_backend
from flambeau.distributed.collectives.world import _World as _World
from flambeau.distributed.collectives.world import _world
from flambeau.doors import door

_shown, __dir__, _ = door(__name__, distributed.SHOWN, {
    "collectives.checks": "_check_single_tensor _check_tensor_list _ensure_all_tensors_same_dtype",
    "collectives.coalescing": "_CollOp _IllegalWork",
    "collectives.gather": "_validate_output_list_for_rank",
    "collectives.initialize": "_get_default_timeout",
    "collectives.point_to_point": "_check_op _check_p2p_op_list",
    "collectives.ranks": "_canonicalize_group_rank _check_not_self_rank _get_global_rank _get_group_size",
    "collectives.registry": """_find_or_create_pg_by_ranks_and_tag _find_pg_by_ranks_and_tag _get_all_pg_configs _get_default_store
        _get_group_size_by_name _get_group_tag _get_pg_config _get_process_group_store _get_process_group_uid _hash_ranks_to_str
        _register_process_group _resolve_group_name_by_ranks_and_tag _resolve_process_group _unregister_all_process_groups
        _unregister_process_group""",
    "collectives.subgroups": "SHRINK_ABORT SHRINK_DEFAULT _new_group_with_tag",
    "collectives.world": """_check_valid_timeout _device_capability _get_default_group _get_object_coll_device _get_pg_default_device
        _group_or_default_group _set_pg_timeout _update_default_pg _warn_not_in_group""",
    "objects": "_object_to_tensor _tensor_to_object",
    "options": "_DistributedBackendOptions",
    "process_group_gloo": "_ProcessGroupWrapper",
})  # fmt: skip
__all__ = sorted(
    set(distributed.__all__)
    - set(
        """AllgatherOptions BuiltinCommHookType DeviceMesh DistBackendError DistError DistNetworkError DistStoreError FileStore GradBucket HashStore
        Logger QueueEmptyError Reducer TCPStore breakpoint init_device_mesh is_available register_rendezvous_handler rendezvous set_debug_level
        set_debug_level_from_env""".split()
    )
)

STORE_BASED_BARRIER_PREFIX = "store_based_barrier_key"
PG_WRAPPER_STORE_PREFIX = "pg_wrapper"
logger = logging.getLogger(__name__)
_pickler, _unpickler = pickle.Pickler, pickle.Unpickler

# What is different every time it is asked for: what this machine has, and the tables of `_world` under their older names.
_CHANGING = {
    "_GLOO_AVAILABLE": is_gloo_available,
    "_MPI_AVAILABLE": is_mpi_available,
    "_NCCL_AVAILABLE": is_nccl_available,
    "_TORCHCOMM_AVAILABLE": lambda: False,
    "_UCC_AVAILABLE": is_ucc_available,
    "_XCCL_AVAILABLE": is_xccl_available,
    "_backend": lambda: "undefined" if _world.default_pg is None else get_backend(),
    "_default_pg_init_method": lambda: None,
    "_group_count": lambda: _world.group_count,
    "_pg_backend_config": lambda: _world.pg_backend_config,
    "_pg_group_ranks": lambda: _world.pg_group_ranks,
    "_pg_map": lambda: _world.pg_map,
    "_pg_names": lambda: _world.pg_names,
    "_pg_to_tag": lambda: _world.pg_to_tag,
    "_tags_to_pg": lambda: _world.tags_to_pg,
}


def __getattr__(name: str) -> Any:
    return _CHANGING[name]() if name in _CHANGING else _shown(name)
