"""ShardedTensor and its pieces, to be imported."""

from __future__ import annotations

from flambeau import import_only

__all__ = ["Shard", "ShardedTensor"]

Shard, ShardedTensor = import_only.classes(
    "torch.distributed._shard.sharded_tensor",
    "Shard ShardedTensor",
    "tensors in pieces are DTensors here (torch.distributed.tensor), which checkpoints read and write on any number of ranks",
)
