"""torch.distributed.fsdp: models whose parameters are divided among ranks. `fully_shard` changes a model in place, FullyShardedDataParallel wraps it."""

from __future__ import annotations

from flambeau.doors import door

__getattr__, __dir__, __all__ = door(__name__, {
    "_fully_shard.fsdp_module": "FSDPModule UnshardHandle register_fsdp_forward_method share_comm_ctx",
    "_fully_shard.fully_shard": "fully_shard",
    "_fully_shard.policies": "CPUOffloadPolicy DataParallelMeshDims MixedPrecisionPolicy OffloadPolicy",
    "api": """BackwardPrefetch CPUOffload FullOptimStateDictConfig FullStateDictConfig LocalOptimStateDictConfig LocalStateDictConfig
        MixedPrecision OptimStateDictConfig ShardedOptimStateDictConfig ShardedStateDictConfig ShardingStrategy StateDictConfig
        StateDictSettings StateDictType""",
    "fully_sharded_data_parallel": "FlatParameter FullyShardedDataParallel OptimStateKeyType",
})  # fmt: skip
