"""torch.distributed._shard.sharded_tensor: isinstance(x, ShardedTensor) is False, for all there is are DTensors."""

from flambeau.distributed._shard.metadata import ShardMetadata
from flambeau.distributed._shard.sharded_tensor.api import Shard, ShardedTensor
from flambeau.distributed._shard.sharded_tensor.metadata import ShardedTensorMetadata, TensorProperties

__all__ = ["Shard", "ShardMetadata", "ShardedTensor", "ShardedTensorMetadata", "TensorProperties"]
