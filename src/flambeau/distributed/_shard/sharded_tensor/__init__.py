"""torch.distributed._shard.sharded_tensor: isinstance(x, ShardedTensor) is False, for all there is are DTensors."""

from __future__ import annotations

from flambeau.doors import door

__getattr__, __dir__, __all__ = door(__name__, {
    "api": "Shard ShardedTensor",
    "metadata": "ShardMetadata ShardedTensorMetadata TensorProperties",
})  # fmt: skip
