"""torch.distributed.fsdp._fully_shard._fsdp_common: what `shard_placement_fn` may return, under the names of PyTorch's file."""

from flambeau.distributed.fsdp._fully_shard.meshes import Meshes
from flambeau.distributed.fsdp._fully_shard.policies import ShardPlacementResult as ShardPlacementResult

FSDPMeshInfo = HSDPMeshInfo = DDPMeshInfo = Meshes
