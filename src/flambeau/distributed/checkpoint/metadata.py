"""What a checkpoint is made of: for every name the tensor and the boxes it was cut into, and where the bytes of each box are.

These classes are written to `.metadata` as pickles under PyTorch's names, so their attributes are PyTorch's.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

from flambeau import dtypes
from flambeau.distributed.checkpoint.stateful import StatefulT
from flambeau.ops.formats import channels_last, contiguous_format, memory_format, preserve_format
from flambeau.tensor import Size, Tensor, layouts

__all__ = [
    "BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta", "TensorProperties",
    "TensorStorageMetadata",
]  # fmt: skip


@dataclass
class ChunkStorageMetadata:
    """A box of a tensor: where it begins, and how large it is in every dimension."""

    offsets: Size
    sizes: Size


class _MEM_FORMAT_ENCODING(Enum):
    """How a memory format is written in a file."""

    TORCH_CONTIGUOUS_FORMAT = 0
    TORCH_CHANNELS_LAST = 1
    TORCH_PRESERVE_FORMAT = 2


_FORMATS = {
    contiguous_format: _MEM_FORMAT_ENCODING.TORCH_CONTIGUOUS_FORMAT,
    channels_last: _MEM_FORMAT_ENCODING.TORCH_CHANNELS_LAST,
    preserve_format: _MEM_FORMAT_ENCODING.TORCH_PRESERVE_FORMAT,
}


@dataclass
class TensorProperties:
    """What is needed to make a tensor besides its size and its elements."""

    dtype: dtypes.dtype = field(default_factory=lambda: dtypes.float32)
    layout: layouts.layout = field(default=layouts.strided)
    requires_grad: bool = False
    memory_format: memory_format = field(default=contiguous_format)
    pin_memory: bool = False

    def __getstate__(self) -> tuple[Any, ...]:
        if self.memory_format not in _FORMATS:
            raise RuntimeError(f"a checkpoint knows {', '.join(map(str, _FORMATS))} as memory formats, not {self.memory_format}")
        return (self.dtype, self.layout, self.requires_grad, _FORMATS[self.memory_format], self.pin_memory)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.dtype, self.layout, self.requires_grad, written, self.pin_memory = state
        self.memory_format = next((found for found, code in _FORMATS.items() if code is written), contiguous_format)

    @staticmethod
    def create_from_tensor(tensor: Tensor) -> TensorProperties:
        """The properties of this tensor."""
        return TensorProperties(
            dtype=tensor.dtype,
            layout=tensor.layout,
            requires_grad=tensor.requires_grad,
            memory_format=contiguous_format,
            pin_memory=tensor.device.type == "cpu" and tensor.is_pinned(),
        )


@dataclass
class TensorStorageMetadata:
    """A saved tensor, and the boxes that together are all of it."""

    properties: TensorProperties
    size: Size
    chunks: list[ChunkStorageMetadata]


@dataclass
class BytesStorageMetadata:
    """Something saved that is not a tensor."""


STORAGE_TYPES: TypeAlias = TensorStorageMetadata | BytesStorageMetadata
STATE_DICT_TYPE: TypeAlias = dict[str, StatefulT | Any]


@dataclass
class StorageMeta:
    """Which save this is, and where it went."""

    checkpoint_id: str | os.PathLike | None = None
    save_id: str | None = None
    load_id: str | None = None
    modules: list[str] = field(default_factory=list)


@dataclass
class Metadata:
    """The whole checkpoint: `state_dict_metadata` says what, `storage_data` says where, `planner_data` how names were flattened."""

    state_dict_metadata: dict[str, STORAGE_TYPES]
    planner_data: Any = None
    storage_data: Any = None
    storage_meta: StorageMeta | None = None
    version: str | None = None


@dataclass(frozen=True)
class MetadataIndex:
    """A box of a saved tensor, or a saved object, by its name and where the box begins. `index` says where to look first, and is no part of
    what makes two of them equal."""

    fqn: str
    offset: Size | None = None
    index: int | None = field(hash=False, compare=False, default=None)

    def __init__(self, fqn: str, offset: Sequence[int] | None = None, index: int | None = None):
        object.__setattr__(self, "fqn", fqn)
        object.__setattr__(self, "index", index)
        object.__setattr__(self, "offset", None if offset is None else Size(offset))
