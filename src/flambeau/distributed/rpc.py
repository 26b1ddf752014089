"""torch.distributed.rpc: calls of functions in other processes. There are none: `is_available()` says so, and the names can be imported."""

from __future__ import annotations

from flambeau import import_only
from flambeau.distributed import WHY

BackendType, RpcBackendOptions, RRef, TensorPipeAgent, TensorPipeRpcBackendOptions, WorkerInfo = import_only.classes(
    "torch.distributed.rpc", "BackendType RpcBackendOptions RRef TensorPipeAgent TensorPipeRpcBackendOptions WorkerInfo", WHY
)
get_worker_info, init_rpc, remote, rpc_async, rpc_sync, shutdown = import_only.functions(
    "torch.distributed.rpc", "get_worker_info init_rpc remote rpc_async rpc_sync shutdown", WHY
)

__all__ = [
    "BackendType", "RRef", "RpcBackendOptions", "TensorPipeAgent", "TensorPipeRpcBackendOptions", "WorkerInfo", "get_worker_info",
    "init_rpc", "is_available", "remote", "rpc_async", "rpc_sync", "shutdown",
]  # fmt: skip


def is_available() -> bool:
    """Whether functions can be called in other processes: not yet."""
    return False
