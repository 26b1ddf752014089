"""torch.distributed.fsdp: models whose parameters are divided among ranks. `fully_shard` changes a model in place, FullyShardedDataParallel wraps it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from flambeau.distributed.fsdp._fully_shard import *
from flambeau.distributed.fsdp._fully_shard import __all__ as _in_place

_WRAPPING = """BackwardPrefetch CPUOffload FullOptimStateDictConfig FullStateDictConfig FullyShardedDataParallel LocalOptimStateDictConfig
    LocalStateDictConfig MixedPrecision OptimStateDictConfig OptimStateKeyType ShardedOptimStateDictConfig ShardedStateDictConfig ShardingStrategy
    StateDictConfig StateDictSettings StateDictType FlatParameter""".split()

__all__ = sorted([*_in_place, *_WRAPPING])  # pyright: ignore


def __getattr__(name: str) -> Any:
    """What belongs to FullyShardedDataParallel is loaded when it is asked for."""
    if name not in _WRAPPING:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for home in ("api", "fully_sharded_data_parallel"):
        found = vars(import_module(f"{__name__}.{home}")).get(name)
        if found is not None:
            globals()[name] = found
            break
    return globals()[name]
