"""torch.distributed._shard.sharding_spec: how tensors were cut before DTensor's placements."""

from flambeau import import_only
from flambeau.distributed._shard.metadata import ShardMetadata

ChunkShardingSpec, EnumerableShardingSpec, ShardingSpec = import_only.classes(
    "torch.distributed._shard.sharding_spec",
    "ChunkShardingSpec EnumerableShardingSpec ShardingSpec",
    "tensors are cut by placements here: distribute_tensor(tensor, mesh, [Shard(0)])",
)

__all__ = ["ChunkShardingSpec", "EnumerableShardingSpec", "ShardMetadata", "ShardingSpec"]
