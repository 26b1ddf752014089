"""torch.distributed: what a program asks before it does without. There are no process groups yet: `is_available()` says so.

>>> is_available() and is_initialized()
False
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, NoReturn

from flambeau import import_only

WHY = "there are no process groups in Flambeau yet. Run the program as one process"

Backend, ProcessGroup, ReduceOp, Store, TCPStore, Work = import_only.classes(
    "torch.distributed", "Backend ProcessGroup ReduceOp Store TCPStore Work", WHY
)
(
    all_gather, all_gather_into_tensor, all_gather_object, all_reduce, all_to_all, all_to_all_single, barrier, broadcast,
    broadcast_object_list, destroy_process_group, gather, gather_object, get_backend, get_process_group_ranks, irecv, isend,
    monitored_barrier, new_group, recv, reduce, reduce_scatter, reduce_scatter_tensor, scatter, scatter_object_list, send,
) = import_only.functions(
    "torch.distributed",
    """all_gather all_gather_into_tensor all_gather_object all_reduce all_to_all all_to_all_single barrier broadcast
    broadcast_object_list destroy_process_group gather gather_object get_backend get_process_group_ranks irecv isend
    monitored_barrier new_group recv reduce reduce_scatter reduce_scatter_tensor scatter scatter_object_list send""",
    WHY,
)  # fmt: skip

__all__ = [
    "Backend", "ProcessGroup", "ReduceOp", "Store", "TCPStore", "Work", "all_gather", "all_gather_into_tensor", "all_gather_object",
    "all_reduce", "all_to_all", "all_to_all_single", "barrier", "broadcast", "broadcast_object_list", "destroy_process_group", "gather",
    "gather_object", "get_backend", "get_process_group_ranks", "get_rank", "get_world_size", "init_process_group", "irecv", "is_available",
    "is_gloo_available", "is_initialized", "is_mpi_available", "is_nccl_available", "is_torchelastic_launched", "isend",
    "monitored_barrier", "new_group", "recv", "reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter", "scatter_object_list", "send",
]  # fmt: skip


def is_available() -> bool:
    """Whether processes can train together: not yet. Programs that ask first train alone, as with a PyTorch that was built without it."""
    return False


is_gloo_available = is_mpi_available = is_nccl_available = is_available


def is_initialized() -> bool:
    """Whether this process belongs to a group: no."""
    return False


def is_torchelastic_launched() -> bool:
    """Whether a launcher started this process, which it says in the environment."""
    return os.environ.get("TORCHELASTIC_RUN_ID") is not None


def init_process_group(*args: Any, **kwargs: Any) -> NoReturn:
    """NotImplementedError: there are no process groups."""
    raise NotImplementedError(f"torch.distributed.init_process_group: {WHY}")


def get_rank(group: Any = None) -> NoReturn:
    """ValueError: this process belongs to no group."""
    raise ValueError("Default process group has not been initialized: call init_process_group first.")


def get_world_size(group: Any = None) -> NoReturn:
    """ValueError: this process belongs to no group."""
    get_rank(group)


def __getattr__(name: str) -> Any:
    if name in ("device_mesh", "nn", "optim", "rpc", "tensor"):  # imported when asked for
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
