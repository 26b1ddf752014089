"""torch.distributed.optim: optimizers shared by processes. There are none: the types can be asked for, and nothing is of them."""

from __future__ import annotations

from flambeau import import_only
from flambeau.distributed import WHY

DistributedOptimizer, PostLocalSGDOptimizer, ZeroRedundancyOptimizer = import_only.classes(
    "torch.distributed.optim", "DistributedOptimizer PostLocalSGDOptimizer ZeroRedundancyOptimizer", WHY
)

__all__ = ["DistributedOptimizer", "PostLocalSGDOptimizer", "ZeroRedundancyOptimizer"]
