"""Where things are in a folder: what `Metadata.storage_data` holds for every item, and what plans say about names of files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

__all__: list[str] = []

_IN_FILES = "flambeau.distributed.checkpoint.filesystem"  # torch.distributed.checkpoint.filesystem, in files


@dataclass
class _StorageInfo:
    """A stretch of a file, and the extensions that it was written with."""

    relative_path: str
    offset: int
    length: int
    transform_descriptors: Sequence[str] | None = None

    __module__ = _IN_FILES

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass
class _StoragePrefix:
    """How the names of the files of one rank begin."""

    prefix: str

    __module__ = _IN_FILES


class SerializationFormat(Enum):
    """How a tensor is written."""

    __module__ = _IN_FILES

    TORCH_SAVE = "torch_save"
    SAFETENSORS = "safetensors"
