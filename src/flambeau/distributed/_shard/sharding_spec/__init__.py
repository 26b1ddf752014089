"""torch.distributed._shard.sharding_spec: how tensors were cut before DTensor's placements."""

from flambeau import import_only
from flambeau.distributed._shard.metadata import ShardMetadata as ShardMetadata

WHY = "tensors are cut by placements here: distribute_tensor(tensor, mesh, [Shard(0)])"
__all__ = ["ShardMetadata", *import_only.fill(__name__, WHY, classes="ChunkShardingSpec EnumerableShardingSpec ShardingSpec")]
