"""torch.distributed.rpc: calls of functions in other processes. There are none: `is_available()` says so, and the names can be imported."""

from __future__ import annotations

from enum import Enum

from flambeau import import_only
from flambeau.distributed.rpc.why import WHY

__all__ = [
    "BackendType", "PyRRef", "RRef", "RpcAgent", "RpcBackendOptions", "TensorPipeAgent", "TensorPipeRpcBackendOptions", "WorkerInfo",
    "get_worker_info", "init_rpc", "is_available", "remote", "rpc_async", "rpc_sync", "shutdown",
]  # fmt: skip

PyRRef, RpcAgent, RpcBackendOptions, RRef, TensorPipeAgent, TensorPipeRpcBackendOptions, WorkerInfo = import_only.classes(
    "torch.distributed.rpc",
    "PyRRef RpcAgent RpcBackendOptions RRef TensorPipeAgent TensorPipeRpcBackendOptions WorkerInfo",
    WHY,
)
get_worker_info, init_rpc, remote, rpc_async, rpc_sync, shutdown = import_only.functions(
    "torch.distributed.rpc", "get_worker_info init_rpc remote rpc_async rpc_sync shutdown", WHY
)


class BackendType(Enum):
    """What could carry calls. There is one kind in PyTorch, and none here."""

    TENSORPIPE = "TENSORPIPE"


def is_available() -> bool:
    """Whether functions can be called in other processes: no."""
    return False
