"""torch.distributed.rpc.api: the functions under the name of PyTorch's file. To be imported."""

from __future__ import annotations

from flambeau import import_only
from flambeau.distributed.rpc import RRef, get_worker_info, remote, rpc_async, rpc_sync, shutdown
from flambeau.distributed.rpc.why import WHY

__all__ = ["RRef", "get_worker_info", "remote", "rpc_async", "rpc_sync", "shutdown"]

import_only.fill(__name__, WHY, functions="_all_gather _require_initialized _wait_all")
