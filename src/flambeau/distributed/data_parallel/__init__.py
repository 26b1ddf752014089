"""One model, the same in every process, whose gradients are averaged. The names here are those of torch.nn.parallel.distributed, which shows them."""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import Any

HOMES = {
    "BuiltinCommHookType": "builtin_hooks",
    "DistributedDataParallel": "module",
    "GradBucket": "grad_bucket",
    "Logger": "logging_data",
    "Reducer": "reducer",
    "_DEFAULT_FIRST_BUCKET_BYTES": "by_hand",
    "_broadcast_coalesced": "by_hand",
    "_compute_bucket_assignment_by_size": "by_hand",
    "_register_builtin_comm_hook": "by_hand",
    "_register_comm_hook": "by_hand",
    "_verify_params_across_processes": "by_hand",
    "_BufferCommHook": "buffers",
    "_BufferCommHookLocation": "buffers",
    "_DDPJoinHook": "uneven",
    "_MixedPrecision": "mixed_precision",
    "_find_tensors": "unused",
}
__all__ = ["BuiltinCommHookType", "DistributedDataParallel", "GradBucket", "Logger", "Reducer"]


def __getattr__(name: str) -> Any:
    if name in HOMES:
        found = globals()[name] = getattr(_import_module(f"{__name__}.{HOMES[name]}"), name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
