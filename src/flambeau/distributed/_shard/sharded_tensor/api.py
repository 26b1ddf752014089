"""ShardedTensor and its pieces, to be imported."""

from __future__ import annotations

from flambeau import import_only

WHY = "tensors in pieces are DTensors here (torch.distributed.tensor), which checkpoints read and write on any number of ranks"
__all__ = import_only.fill(__name__, WHY, classes="Shard ShardedTensor", of="torch.distributed._shard.sharded_tensor")
