"""`FileSystemReader`: the way back from a folder to tensors and objects."""

from __future__ import annotations

import io
import os
import uuid
from collections.abc import Sequence
from typing import IO, Any

from flambeau.distributed.checkpoint import file_names, metadata_file
from flambeau.distributed.checkpoint._extension import ExtensionRegistry, StreamTransformExtension
from flambeau.distributed.checkpoint.folders import AnyPath, FileSystem, FileSystemBase
from flambeau.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta
from flambeau.distributed.checkpoint.places import _StorageInfo
from flambeau.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from flambeau.distributed.checkpoint.resharding import narrow_tensor_by_index
from flambeau.distributed.checkpoint.storage import StorageReader
from flambeau.distributed.checkpoint.utils import _create_file_view
from flambeau.futures import Future, finished
from flambeau.serialization import load
from flambeau.tensor import Tensor

__all__ = ["FileSystemReader"]


class FileSystemReader(StorageReader):
    """Reads checkpoints from a folder, those that PyTorch has written, too. No file can run code.

    torch.distributed.checkpoint.load(state, storage_reader=FileSystemReader("checkpoint"))
    """

    def __init__(self, path: AnyPath, _extension_registry: ExtensionRegistry | None = None) -> None:
        super().__init__()
        self.fs: FileSystemBase = FileSystem()
        self.path = self.fs.init_path(path)
        self.storage_data: dict[Any, Any] = {}
        self.load_id = str(uuid.uuid4())
        self.transforms = _StorageReaderTransforms(_extension_registry)
        self.rank: int | None = None
        self.use_collectives = True

    def reset(self, checkpoint_id: AnyPath | None = None) -> None:
        self.storage_data = {}
        if checkpoint_id:
            self.path = self.fs.init_path(checkpoint_id)
        self.load_id = str(uuid.uuid4())

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """What the checkpoint has; with `rank=`, what that rank has written of one that was saved without collectives."""
        path = self._get_metadata_path(kwargs.get("rank"))
        with self.fs.create_stream(path, "rb") as stream:
            metadata = metadata_file.parse(stream.read(), os.fspath(path))
        if metadata.storage_meta is None:
            metadata.storage_meta = StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata

    def _get_metadata_path(self, rank: int | None = None) -> AnyPath:
        return self.fs.concat_path(self.path, file_names.metadata_of_rank(rank))

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self.rank = kwargs.get("rank")
        self.use_collectives = kwargs.get("use_collectives", True)
        self.storage_data = metadata.storage_data
        if not isinstance(self.storage_data, dict):
            raise RuntimeError(f"the metadata in {self.path} do not say where the data are: they were not written by a FileSystemWriter")

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        by_file: dict[str, list[tuple[_StorageInfo, ReadItem]]] = {}
        for item in plan.items:
            place = self._place(item.storage_index)
            by_file.setdefault(place.relative_path, []).append((place, item))
        for name, wanted in by_file.items():
            wanted.sort(key=lambda pair: pair[0].offset)
            self._read_file(name, wanted, planner)
        return finished(None)

    def _place(self, index: MetadataIndex) -> _StorageInfo:
        place = self.storage_data.get(index)
        if not isinstance(place, _StorageInfo):
            raise RuntimeError(
                f"the metadata in {self.path} do not say where {index.fqn!r} at {index.offset} is: the checkpoint is incomplete"
            )
        inside = os.path.normpath(place.relative_path)
        if os.path.isabs(inside) or inside.split(os.sep)[0] == "..":
            raise RuntimeError(f"the metadata in {self.path} name a file outside of it, {place.relative_path!r}: it is not read")
        return place

    def _read_file(self, name: str, wanted: list[tuple[_StorageInfo, ReadItem]], planner: LoadPlanner) -> None:
        path = self.fs.concat_path(self.path, name)
        last: tuple[int, Tensor] | None = None  # boxes that several stretches are wanted of are read once
        try:
            with self.fs.create_stream(path, "rb") as stream:
                for place, item in wanted:
                    if item.type is LoadItemType.BYTE_IO:
                        planner.load_bytes(item, io.BytesIO(self._stream(stream, place, item).read(-1)))
                        continue
                    if last is None or last[0] != place.offset:
                        last = place.offset, self._tensor(self._stream(stream, place, item))
                    fill(planner, item, narrow_tensor_by_index(last[1], item.storage_offsets, item.lengths))
        except FileNotFoundError as problem:
            problem.add_note(
                f"(.metadata in {self.path} names this file. Has another save to the folder replaced the checkpoint meanwhile? Then load again; otherwise the "
                "file was removed, or not copied)"
            )
            raise

    def _stream(self, stream: Any, place: _StorageInfo, item: ReadItem) -> IO[bytes]:
        raw: Any = _create_file_view(stream, place.offset, place.length)
        return self.transforms.transform_load_stream(item, place.transform_descriptors or (), raw)

    def _tensor(self, stream: IO[bytes]) -> Tensor:
        found = load(stream if stream.seekable() else io.BytesIO(stream.read(-1)), map_location="cpu", weights_only=True)
        if not isinstance(found, Tensor):
            raise RuntimeError(f"the metadata in {self.path} promise a tensor where a {type(found).__name__} is")
        return found

    @property
    def checkpoint_id(self) -> AnyPath:
        """Where the checkpoint is."""
        return self.path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: AnyPath) -> bool:
        return FileSystem.validate_checkpoint_id(checkpoint_id)


def fill(planner: LoadPlanner, item: ReadItem, tensor: Tensor) -> None:
    """Copy the elements of a stretch to where the planner wants them."""
    target = planner.resolve_tensor(item).detach()
    if target.size() != tensor.size():
        raise AssertionError(
            f"req {item.storage_index} mismatch sizes {target.size()} vs {tensor.size()}: the metadata and the file do not agree"
        )
    target.copy_(tensor)
    planner.commit_tensor(item, target)


class _StorageReaderTransforms:
    """Undoes the extensions that a file was written with."""

    def __init__(self, extension_registry: ExtensionRegistry | None = None) -> None:
        self.extension_registry = ExtensionRegistry() if extension_registry is None else extension_registry

    def transform_load_stream(self, read_item: ReadItem, transform_descriptors: Sequence[str], raw_stream: IO[bytes]) -> IO[bytes]:
        """The stream of what was written, given the stream of what is in the file."""
        stream = raw_stream
        for extension in self.extension_registry.from_descriptor_list(transform_descriptors):
            if isinstance(extension, StreamTransformExtension):
                stream = extension.transform_from(stream)
        return stream
