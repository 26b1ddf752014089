"""What is known of a tensor in pieces without its elements."""

from __future__ import annotations

from dataclasses import dataclass, field

from flambeau.distributed._shard.metadata import ShardMetadata
from flambeau.distributed.checkpoint.metadata import TensorProperties
from flambeau.tensor import Size

__all__ = ["ShardedTensorMetadata", "TensorProperties"]


@dataclass
class ShardedTensorMetadata:
    """The pieces, the size of the whole, and what a tensor has besides."""

    shards_metadata: list[ShardMetadata] = field(default_factory=list)
    size: Size = field(default_factory=lambda: Size([]))
    tensor_properties: TensorProperties = field(default_factory=TensorProperties)
