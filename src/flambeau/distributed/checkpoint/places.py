"""Where things are in a folder: what `Metadata.storage_data` holds for every item, and what plans say about names of files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

__all__: list[str] = []


@dataclass
class _StorageInfo:
    """A stretch of a file, and the extensions that it was written with."""

    relative_path: str
    offset: int
    length: int
    transform_descriptors: Sequence[str] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass
class _StoragePrefix:
    """How the names of the files of one rank begin."""

    prefix: str


class SerializationFormat(Enum):
    """How a tensor is written."""

    TORCH_SAVE = "torch_save"
    SAFETENSORS = "safetensors"


for _kind in (_StorageInfo, _StoragePrefix, SerializationFormat):
    _kind.__module__ = "flambeau.distributed.checkpoint.filesystem"  # torch.distributed.checkpoint.filesystem, in files
