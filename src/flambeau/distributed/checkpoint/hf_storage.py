"""Checkpoints in Hugging Face's layout: files of safetensors, and an index that says which tensor is in which.

save_distributed=False         rank 0 writes whole tensors       model-00001-of-00002.safetensors, ..., model.safetensors.index.json
save_distributed=True          every rank writes its boxes       shard-00001-model-00001-of-00001.safetensors, ...
  and enable_consolidation     ... to the folder `sharded`, and rank 0 makes whole files of them

The reader takes all of these, and the files that others have written: any number of ranks read what they need of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from flambeau.distributed.checkpoint import safetensors_file
from flambeau.distributed.checkpoint._consolidate_hf_safetensors import consolidate_safetensors_files, write_index
from flambeau.distributed.checkpoint.folder_reader import FileSystemReader, fill
from flambeau.distributed.checkpoint.folder_writer import FileSystemWriter
from flambeau.distributed.checkpoint.folders import AnyPath
from flambeau.distributed.checkpoint.item_files import resolved
from flambeau.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from flambeau.distributed.checkpoint.places import SerializationFormat, _StorageInfo
from flambeau.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner, WriteItem, WriteItemType
from flambeau.distributed.checkpoint.resharding import narrow_tensor_by_index
from flambeau.distributed.checkpoint.safetensors_file import INDEX, OFFSETS, SHARDING, SUFFIX, Box, file_name
from flambeau.distributed.checkpoint.storage import WriteResult
from flambeau.dtypes import dtype, uint8
from flambeau.futures import Future, finished
from flambeau.tensor import Size

__all__ = ["HuggingFaceStorageReader", "HuggingFaceStorageWriter"]

SHARDED = "sharded"  # the folder of what ranks have written, inside that of the whole files


@dataclass
class _HFStorageInfo:
    """Where a box is: a file, and what it holds under the name of the tensor."""

    relative_path: str
    shape: Size
    dtype: dtype


class HuggingFaceStorageWriter(FileSystemWriter):
    """Writes states of tensors as safetensors. Objects of other kinds have no place in these files: ValueError names them.

    path                          the folder
    fqn_to_index_mapping          for every name the number of its file, from 1; all in one file without it
    thread_count                  threads that write, each a file
    save_distributed              every rank writes what it has, instead of rank 0 everything
    enable_consolidation          make whole files of it at the end
    thread_count_consolidation    threads for that, each a file

        torch.distributed.checkpoint.save(model.state_dict(), storage_writer=HuggingFaceStorageWriter("model", save_distributed=True))
    """

    def __init__(
        self,
        path: AnyPath,
        fqn_to_index_mapping: dict[str, int] | None = None,
        thread_count: int = 1,
        save_distributed: bool = False,
        enable_consolidation: bool = False,
        thread_count_consolidation: int = 1,
    ) -> None:
        super().__init__(path, thread_count=thread_count, serialization_format=SerializationFormat.SAFETENSORS)
        self.fqn_to_index_mapping = fqn_to_index_mapping
        self.save_distributed = save_distributed
        self.enable_consolidation = enable_consolidation
        self.thread_count_consolidation = thread_count_consolidation
        self.consolidated_output_path = str(self.path) if enable_consolidation else None
        if enable_consolidation:
            self.path = self.fs.concat_path(self.path, SHARDED)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        self.fs.mkdir(self.path)
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        known = {} if self.fqn_to_index_mapping is None else {"fqn_to_index_mapping": self.fqn_to_index_mapping}
        return [
            replace(plan, storage_data=known | ({"shard_index": i} if self.save_distributed else {})) for i, plan in enumerate(plans, 1)
        ]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        numbers, shard = plan.storage_data.get("fqn_to_index_mapping"), plan.storage_data.get("shard_index")
        files: dict[str, list[WriteItem]] = {}
        highest = 1 if numbers is None else max(numbers.values())
        for item in plan.items:
            if item.type is WriteItemType.BYTE_IO:
                raise ValueError(
                    f"safetensors files hold tensors alone, and {item.index.fqn!r} is none: save it another way, or leave it out"
                )
            files.setdefault(file_name(1 if numbers is None else numbers[item.index.fqn], highest, shard), []).append(item)
        with ThreadPoolExecutor(max(1, min(self.thread_count, len(files))), "flambeau.checkpoint") as pool:
            jobs = [pool.submit(self._write, name, items, planner) for name, items in files.items()]
        results = [result for job in jobs for result in job.result()]
        if self.sync_files and files:
            self.fs.sync_folder(self.path)
        return finished(results)

    def _write(self, name: str, items: list[WriteItem], planner: SavePlanner) -> list[WriteResult]:
        # The table comes first and needs the shapes alone, so one tensor at a time is in memory twice.
        found = [(item, data.contiguous()) for item, data in resolved(items, planner, 0)]
        offsets = {item.index.fqn: {OFFSETS: list(item.tensor_data.chunk.offsets)} for item, _ in found if item.tensor_data is not None}
        if len(offsets) < len(found):
            raise NotImplementedError("a rank has several boxes of one tensor, and a safetensors file has one place for each name")
        with self._new_file(name) as stream:
            tensors = [(item.index.fqn, safetensors_file.kind_of(data, item.index.fqn), tuple(data.shape)) for item, data in found]
            safetensors_file.write_table(stream, tensors, {SHARDING: json.dumps(offsets), "DCP_VERSION": "1.0"})
            for _, data in found:
                stream.write(memoryview(data.detach().reshape(-1).view(uint8).numpy()) if data.numel() else b"")
        sizes = [data.numel() * data.dtype.itemsize for _, data in found]
        return [WriteResult(item.index, size, _StorageInfo(name, 0, size)) for (item, _), size in zip(found, sizes, strict=True)]

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        if not self.save_distributed:
            weights = {result.index.fqn: result.storage_data.relative_path for of_rank in results for result in of_rank}
            write_index(str(self.path), weights, sum(result.size_in_bytes for of_rank in results for result in of_rank))
        elif self.consolidated_output_path is not None:
            numbers = self.fqn_to_index_mapping or dict.fromkeys(metadata.state_dict_metadata, 1)
            consolidate_safetensors_files(str(self.path), self.consolidated_output_path, numbers, self.thread_count_consolidation)

    def _abandon(self) -> None:
        """The save failed: what this rank has written is no part of anything."""
        self._remove(self._made)

    @property
    def metadata_path(self) -> str:
        return INDEX


class HuggingFaceStorageReader(FileSystemReader):
    """Reads a folder of safetensors files, whole or in boxes: the tables of the files say what is there, the index is not asked.

    torch.distributed.checkpoint.load(state, storage_reader=HuggingFaceStorageReader("model"))
    """

    def __init__(self, path: AnyPath, thread_count: int = 1) -> None:
        super().__init__(path)
        self.thread_count = thread_count

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        found: dict[str, TensorStorageMetadata] = {}
        places: dict[MetadataIndex, _HFStorageInfo] = {}
        for path in sorted(path for path in self.fs.ls(self.path) if path.endswith(SUFFIX)):
            with self._open(path) as (_, boxes):
                for box in boxes:
                    _add(found, box)
                    places[box.index] = _HFStorageInfo(path, Size(box.shape), box.dtype)
        if not places:
            raise FileNotFoundError(f"{self.path} has no tensors: there is no {SUFFIX} file in it, or all are empty")
        metadata = Metadata(state_dict_metadata=found, storage_data=places)  # type: ignore[arg-type]
        metadata.storage_meta = StorageMeta(load_id=self.load_id)
        return metadata

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        by_file: dict[str, list[ReadItem]] = {}
        for item in plan.items:
            by_file.setdefault(self.storage_data[item.storage_index].relative_path, []).append(item)
        with ThreadPoolExecutor(max(1, min(self.thread_count, len(by_file))), "flambeau.checkpoint") as pool:
            jobs = [pool.submit(self._read, path, items, planner) for path, items in by_file.items()]
        for job in jobs:
            job.result()
        return finished(None)

    def _read(self, path: str, items: list[ReadItem], planner: LoadPlanner) -> None:
        with self._open(path) as (stream, boxes):
            by_name = {box.name: box for box in boxes}
            for name in sorted({item.storage_index.fqn for item in items}, key=lambda name: by_name[name].first):
                tensor = by_name[name].tensor(stream)
                for item in items:
                    if item.storage_index.fqn == name:
                        fill(planner, item, narrow_tensor_by_index(tensor, item.storage_offsets, item.lengths))

    @contextmanager
    def _open(self, path: str) -> Iterator[tuple[Any, list[Box]]]:
        with self.fs.create_stream(path, "rb") as stream:
            yield stream, safetensors_file.boxes(stream, path)


def _add(found: dict[str, TensorStorageMetadata], box: Box) -> None:
    """A box belongs to the tensor of its name, which reaches as far as its boxes do."""
    chunk = ChunkStorageMetadata(Size(box.offsets), Size(box.shape))
    reach = [at + n for at, n in zip(box.offsets, box.shape, strict=True)]
    whole = found.get(box.name)
    if whole is None:
        found[box.name] = TensorStorageMetadata(TensorProperties(dtype=box.dtype), Size(reach), [chunk])
        return
    if whole.properties.dtype != box.dtype or len(whole.size) != len(reach):
        raise RuntimeError(f"{box.path} has a box of {box.name!r} of another dtype or number of dimensions than another file has")
    whole.chunks.append(chunk)
    whole.size = Size(max(a, b) for a, b in zip(whole.size, reach, strict=True))
