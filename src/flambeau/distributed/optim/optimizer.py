"""DistributedOptimizer moves parameters that lie in other processes, by remote calls, which there are none of."""

from __future__ import annotations

from flambeau import import_only

WHY = (
    "it moves parameters of other processes by remote procedure calls (torch.distributed.rpc), which Flambeau has not. ZeroRedundancyOptimizer shares "
    "out the states of an optimizer, fully_shard() parameters too"
)
__all__ = import_only.fill(__name__, WHY, classes="DistributedOptimizer", of="torch.distributed.optim")
