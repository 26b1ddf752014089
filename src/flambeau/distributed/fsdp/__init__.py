"""torch.distributed.fsdp: models whose parameters are divided among ranks. The names can be imported, not used yet."""

from __future__ import annotations

from flambeau import import_only

WHY = "parameters are not divided among ranks yet. DistributedDataParallel trains with whole ones, ZeroRedundancyOptimizer divides the optimizer's state"

_CLASSES = """BackwardPrefetch CPUOffload CPUOffloadPolicy FSDPModule FlatParameter FullOptimStateDictConfig FullStateDictConfig
    FullyShardedDataParallel LocalOptimStateDictConfig LocalStateDictConfig MixedPrecision MixedPrecisionPolicy OffloadPolicy
    OptimStateDictConfig OptimStateKeyType ShardedOptimStateDictConfig ShardedStateDictConfig ShardingStrategy StateDictConfig
    StateDictSettings StateDictType UnshardHandle"""
_FUNCTIONS = "fully_shard register_fsdp_forward_method share_comm_ctx"

globals().update(zip(_CLASSES.split(), import_only.classes("torch.distributed.fsdp", _CLASSES, WHY), strict=True))
globals().update(zip(_FUNCTIONS.split(), import_only.functions("torch.distributed.fsdp", _FUNCTIONS, WHY), strict=True))

__all__ = sorted([*_CLASSES.split(), *_FUNCTIONS.split()])  # pyright: ignore
