"""torch.distributed.nn: collective operations with derivatives."""

from __future__ import annotations

from flambeau import import_only
from flambeau.distributed.nn import functional
from flambeau.distributed.nn.functional import (
    all_gather,
    all_reduce,
    all_to_all,
    all_to_all_single,
    broadcast,
    gather,
    reduce,
    reduce_scatter,
    scatter,
)

__all__ = [
    "RemoteModule", "all_gather", "all_reduce", "all_to_all", "all_to_all_single", "broadcast", "functional", "gather", "reduce",
    "reduce_scatter", "scatter",
]  # fmt: skip

(RemoteModule,) = import_only.classes(
    "torch.distributed.nn",
    "RemoteModule",
    "functions cannot be called in other processes. Every process has its module, and they exchange tensors",
)
