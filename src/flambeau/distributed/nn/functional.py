"""torch.distributed.nn.functional: collective operations with derivatives. There are no processes to share with: calling them says so."""

from __future__ import annotations

from flambeau import import_only
from flambeau.distributed import WHY

__all__ = ["all_gather", "all_reduce", "all_to_all", "broadcast", "gather", "reduce", "reduce_scatter", "scatter"]

all_gather, all_reduce, all_to_all, broadcast, gather, reduce, reduce_scatter, scatter = import_only.functions(
    "torch.distributed.nn.functional", " ".join(__all__), WHY
)
