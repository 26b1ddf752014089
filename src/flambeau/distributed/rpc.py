"""torch.distributed.rpc: calls of functions in other processes. There are none: `is_available()` says so, and the names can be imported."""

from __future__ import annotations

from flambeau import import_only

__all__ = [
    "BackendType", "PyRRef", "RRef", "RpcAgent", "RpcBackendOptions", "TensorPipeAgent", "TensorPipeRpcBackendOptions", "WorkerInfo",
    "get_worker_info", "init_rpc", "is_available", "remote", "rpc_async", "rpc_sync", "shutdown",
]  # fmt: skip

WHY = "functions cannot be called in other processes. Ranks send each other tensors (send, recv) and objects (send_object_list, broadcast_object_list)"

BackendType, PyRRef, RpcAgent, RpcBackendOptions, RRef, TensorPipeAgent, TensorPipeRpcBackendOptions, WorkerInfo = import_only.classes(
    "torch.distributed.rpc",
    "BackendType PyRRef RpcAgent RpcBackendOptions RRef TensorPipeAgent TensorPipeRpcBackendOptions WorkerInfo",
    WHY,
)
get_worker_info, init_rpc, remote, rpc_async, rpc_sync, shutdown = import_only.functions(
    "torch.distributed.rpc", "get_worker_info init_rpc remote rpc_async rpc_sync shutdown", WHY
)


def is_available() -> bool:
    """Whether functions can be called in other processes: no."""
    return False
