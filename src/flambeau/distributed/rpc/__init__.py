"""torch.distributed.rpc: calls of functions in other processes. There are none: `is_available()` says so, and the names can be imported."""

from __future__ import annotations

from enum import Enum

from flambeau import import_only
from flambeau.distributed.rpc.why import WHY

__all__ = import_only.fill(
    __name__,
    WHY,
    classes="PyRRef RpcAgent RpcBackendOptions RRef TensorPipeAgent TensorPipeRpcBackendOptions WorkerInfo",
    functions="get_worker_info init_rpc remote rpc_async rpc_sync shutdown",
)
__all__ += ["BackendType", "is_available"]


class BackendType(Enum):
    """What could carry calls. There is one kind in PyTorch, and none here."""

    TENSORPIPE = "TENSORPIPE"


def is_available() -> bool:
    """Whether functions can be called in other processes: no."""
    return False
