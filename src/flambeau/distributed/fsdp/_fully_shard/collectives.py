"""The collectives that are used unless a program brings its own: those of torch.distributed, on memory made for each call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.distributed.collectives.all_gather import all_gather_single
from flambeau.distributed.collectives.reduce_scatter import reduce_scatter_single
from flambeau.distributed.fsdp._fully_shard.policies import AllGather, ReduceScatter
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import empty


class DefaultAllGather(AllGather):
    """all_gather_into_tensor."""

    def allocate(self, size: Sequence[int], *, dtype: Any, device: Any) -> Tensor:
        return empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, async_op: bool = False) -> Any:
        return all_gather_single(output_tensor, input_tensor, group, async_op)


class DefaultReduceScatter(ReduceScatter):
    """reduce_scatter_tensor."""

    allocate = DefaultAllGather.allocate

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, op: Any, async_op: bool = False) -> Any:
        return reduce_scatter_single(output_tensor, input_tensor, op, group, async_op)
