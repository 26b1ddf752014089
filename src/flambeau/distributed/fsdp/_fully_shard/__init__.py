"""fully_shard and what belongs to it. How it works is told in ../README.md."""

from flambeau.distributed.fsdp._fully_shard.fsdp_module import FSDPModule, UnshardHandle, register_fsdp_forward_method, share_comm_ctx
from flambeau.distributed.fsdp._fully_shard.fully_shard import fully_shard
from flambeau.distributed.fsdp._fully_shard.policies import CPUOffloadPolicy, DataParallelMeshDims, MixedPrecisionPolicy, OffloadPolicy

__all__ = [
    "CPUOffloadPolicy", "DataParallelMeshDims", "FSDPModule", "MixedPrecisionPolicy", "OffloadPolicy", "UnshardHandle", "fully_shard",
    "register_fsdp_forward_method", "share_comm_ctx",
]  # fmt: skip
