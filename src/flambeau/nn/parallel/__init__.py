"""flambeau.nn.parallel: one model, several devices or processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.nn.parallel.data_parallel import DataParallel, data_parallel
from flambeau.nn.parallel.scatter_gather import gather, scatter

if TYPE_CHECKING:
    from flambeau.nn.parallel.distributed import DistributedDataParallel

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel", "distributed", "gather", "scatter"]


def __getattr__(name: str) -> Any:
    if name in ("DistributedDataParallel", "distributed"):  # imported when asked for, with the process groups it needs
        from importlib import import_module

        room = import_module("flambeau.nn.parallel.distributed")
        return room if name == "distributed" else room.DistributedDataParallel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
