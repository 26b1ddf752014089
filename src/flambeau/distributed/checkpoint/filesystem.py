"""torch.distributed.checkpoint.filesystem: checkpoints in folders, writer and reader."""

# ruff: noqa: F401 - names are imported to be found here

from __future__ import annotations

from flambeau.distributed.checkpoint.file_names import METADATA as _metadata_fn
from flambeau.distributed.checkpoint.file_names import SUFFIX as DEFAULT_SUFFIX
from flambeau.distributed.checkpoint.folder_reader import FileSystemReader, _StorageReaderTransforms
from flambeau.distributed.checkpoint.folder_writer import VERSION as CURRENT_DCP_VERSION
from flambeau.distributed.checkpoint.folder_writer import FileSystemWriter, _FileSystemWriter
from flambeau.distributed.checkpoint.folders import FileSystem, FileSystemBase
from flambeau.distributed.checkpoint.item_files import _StorageWriterTransforms, _write_item
from flambeau.distributed.checkpoint.places import SerializationFormat, _StorageInfo, _StoragePrefix

__all__ = ["FileSystem", "FileSystemBase", "FileSystemReader", "FileSystemWriter", "SerializationFormat"]
