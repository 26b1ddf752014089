"""Where a piece of a tensor begins, how large it is, and which rank has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from flambeau.distributed.remote_device import _remote_device

__all__ = ["ShardMetadata"]


@dataclass(init=False)
class ShardMetadata:
    """A box of a tensor, and the place it lies at: "rank:1/cpu", or a `_remote_device`.

    >>> ShardMetadata([4, 0], [2, 3], "rank:1/cpu").placement
    rank:1/cpu
    """

    shard_offsets: list[int] = field(default_factory=list)
    shard_sizes: list[int] = field(default_factory=list)
    placement: _remote_device | None = None

    def __init__(self, shard_offsets: Sequence[int], shard_sizes: Sequence[int], placement: Any = None):
        if len(shard_offsets) != len(shard_sizes):
            raise ValueError(
                "shard_offsets and shard_sizes should have the same number of elements, one per dimension: "
                f"found {list(shard_offsets)} and {list(shard_sizes)}"
            )
        for name, numbers in (("shard_offsets", shard_offsets), ("shard_sizes", shard_sizes)):
            if any(number < 0 for number in numbers):
                raise ValueError(f"{name} should be >= 0: found {list(numbers)}")
        self.shard_offsets, self.shard_sizes = list(shard_offsets), list(shard_sizes)
        self.placement = _remote_device(placement) if isinstance(placement, str) else placement

    def __hash__(self) -> int:
        return hash((*self.shard_offsets, *self.shard_sizes, self.placement))
