"""torch.nn.parallel.distributed: where PyTorch has DistributedDataParallel. Ours lives with the process groups it needs, one floor above."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flambeau.distributed.data_parallel.module import DistributedDataParallel

__all__ = ["DistributedDataParallel"]


def __getattr__(name: str) -> Any:
    from flambeau.distributed import data_parallel

    return getattr(data_parallel, name)
