"""DataParallel: a module whose batches are shared out among the GPUs there are. With one, or none, it runs as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau import devices
from flambeau.batching import trees
from flambeau.nn.modules.module import Module
from flambeau.tensor import Tensor
from flambeau.tensor.memory.host_memory import cuda_device_count


class DataParallel(Module):
    """The module, its parameters under names that begin with "module.".

    >>> list(DataParallel(Linear(2, 1)).state_dict())
    ['module.weight', 'module.bias']
    """

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[int | devices.device] | None = None,
        output_device: int | devices.device | None = None,
        dim: int = 0,
    ) -> None:
        super().__init__()
        self.module = module
        self.device_ids = _chosen(device_ids)
        if self.device_ids:
            self.dim = dim
            self.output_device = self.device_ids[0] if output_device is None else devices.device("cuda", _index(output_device)).index
            module.to(devices.device("cuda", self.device_ids[0]))

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """What the module gives."""
        if self.device_ids:
            place = devices.device("cuda", self.device_ids[0])
            inputs, kwargs = trees.mapped(lambda leaf: leaf.to(place) if isinstance(leaf, Tensor) else leaf, (inputs, kwargs))
        return self.module(*inputs, **kwargs)


def data_parallel(
    module: Module, inputs: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0, module_kwargs: dict | None = None
) -> Any:
    """DataParallel(module, device_ids)(*inputs), without the wrapper."""
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    return DataParallel(module, device_ids, output_device, dim)(*inputs, **(module_kwargs or {}))


def _chosen(device_ids: Sequence[int | devices.device] | None) -> list[int]:
    """The GPUs to use, of which there may be one; none on a machine that has none, whatever was asked for."""
    there = cuda_device_count()
    if not there:
        return []
    chosen = list(range(there) if device_ids is None else map(_index, device_ids))
    if len(chosen) > 1:
        raise NotImplementedError(
            f"DataParallel over {len(chosen)} GPUs is not in Flambeau yet: choose one, DataParallel(module, device_ids=[0])"
        )
    return chosen


def _index(device: int | devices.device) -> int:
    return device if isinstance(device, int) else devices.device(device).index or 0
