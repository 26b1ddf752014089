"""torch.distributed.nn: collective operations with derivatives."""

from __future__ import annotations

from flambeau.distributed.nn import functional
from flambeau.distributed.nn.functional import all_gather, all_reduce, all_to_all, broadcast, gather, reduce, reduce_scatter, scatter

__all__ = ["all_gather", "all_reduce", "all_to_all", "broadcast", "functional", "gather", "reduce", "reduce_scatter", "scatter"]
