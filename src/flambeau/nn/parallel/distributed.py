"""DistributedDataParallel: the type, for programs that look whether a model is one."""

from __future__ import annotations

from typing import Any

from flambeau.nn.modules.module import Module


class DistributedDataParallel(Module):
    """The type of models that several processes train together, for isinstance(): nothing is of this type yet."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "DistributedDataParallel: there are no process groups in Flambeau yet. Use the model itself, in one process"
        )
