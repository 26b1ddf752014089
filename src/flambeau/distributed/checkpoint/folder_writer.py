"""`FileSystemWriter`: plans become files in a folder, and the folder a checkpoint at one moment.

    every rank       .__0_0.distcp.9b3d.tmp --write, fsync, rename--> __0_0.distcp          and fsync of the folder
    coordinator      when all ranks have said that theirs are there:
                     .metadata.77aa.tmp     --write, fsync, rename--> .metadata              from here on, this is the checkpoint
                     then, and only then, the files of the checkpoint before are removed

# Note [one moment]

Files of data never have the name of one that is there already (see file_names.py), so the old checkpoint is untouched until `.metadata`, a file of a few
kilobytes, is replaced as a whole by the system. A process that is killed before leaves the old checkpoint and files that nobody names; one that is killed
after leaves the new one and files that nobody names. The next save to the folder removes those.
"""

from __future__ import annotations

import os
import uuid
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from flambeau.distributed.checkpoint import durable_stream, file_names, metadata_file
from flambeau.distributed.checkpoint._extension import StreamTransformExtension
from flambeau.distributed.checkpoint.folders import AnyPath, FileSystem, FileSystemBase
from flambeau.distributed.checkpoint.item_files import FileOfItems, _StorageWriterTransforms, shared_out, write_all
from flambeau.distributed.checkpoint.metadata import STATE_DICT_TYPE, Metadata, StorageMeta
from flambeau.distributed.checkpoint.places import SerializationFormat, _StoragePrefix
from flambeau.distributed.checkpoint.planner import SavePlan, SavePlanner
from flambeau.distributed.checkpoint.staging import BlockingAsyncStager
from flambeau.distributed.checkpoint.storage import StorageWriter, WriteResult
from flambeau.futures import Future, finished

__all__ = ["FileSystemWriter"]

VERSION = "1.0.0"  # of the format, as PyTorch counts


class FileSystemWriter(StorageWriter, BlockingAsyncStager):
    """Writes checkpoints to a folder of this machine.

    path                      the folder; it is made if it is not there
    single_file_per_rank      one file for each rank (and thread) instead of one for each tensor
    sync_files                return when the disk has everything. Without it, a power cut can lose the checkpoint; a killed process cannot
    thread_count              threads that write, each to a file of its own
    per_thread_copy_ahead     bytes that are fetched from a GPU while others are written
    cache_staged_state_dict   async_save keeps the memory of its copy for the next one
    overwrite                 replace a checkpoint that is there, when the new one is complete; False: RuntimeError

        torch.distributed.checkpoint.save(state, storage_writer=FileSystemWriter("checkpoint", thread_count=2))
    """

    def __init__(
        self,
        path: AnyPath,
        single_file_per_rank: bool = True,
        sync_files: bool = True,
        thread_count: int = 1,
        per_thread_copy_ahead: int = 10_000_000,
        cache_staged_state_dict: bool = False,
        overwrite: bool = True,
        _extensions: Sequence[StreamTransformExtension] | None = None,
        serialization_format: SerializationFormat = SerializationFormat.TORCH_SAVE,
    ) -> None:
        BlockingAsyncStager.__init__(self, cache_staged_state_dict=cache_staged_state_dict)
        if thread_count < 1:
            raise ValueError(f"thread_count is the number of threads that write, at least 1: found {thread_count}")
        self.fs: FileSystemBase = FileSystem()
        self.path = self.fs.init_path(path)
        self.single_file_per_rank = single_file_per_rank
        self.sync_files = sync_files
        self.thread_count = thread_count
        self.per_thread_copy_ahead = per_thread_copy_ahead
        self.overwrite = overwrite
        self.transforms = _StorageWriterTransforms(_extensions)
        self.serialization_format = serialization_format
        self.rank: int | None = None
        self.use_collectives = True
        self._begin()

    def _begin(self) -> None:
        self.save_id = str(uuid.uuid4())
        self._forget()

    def _forget(self) -> None:
        self._before: list[str] = []  # names in the folder before this save
        self._made: list[str] = []  # names that this rank has made in it

    def reset(self, checkpoint_id: AnyPath | None = None) -> None:
        if checkpoint_id:
            self.path = self.fs.init_path(checkpoint_id)
        self._begin()

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self.rank = kwargs.get("rank")
        self.use_collectives = kwargs.get("use_collectives", True)
        self._forget()

    # -- plans

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        self.fs.mkdir(self.path)
        if self._metadata_exists():
            if not self.overwrite:
                raise RuntimeError(
                    f"Checkpoint already exists and self.overwrite=False: {self.path} has a {file_names.METADATA}. Save to another folder, or pass "
                    "overwrite=True to replace it when the new one is complete"
                )
            warnings.warn(
                f"Detected an existing checkpoint in {self.path}, overwriting since self.overwrite=True: it stays readable until the new one is "
                "complete, and is removed then",
                stacklevel=2,
            )
        if self.rank is None or self.use_collectives:
            return plan
        if self.fs.exists(self._get_metadata_path()):
            raise RuntimeError(
                f"{self.path} has a checkpoint of all ranks, which whoever loads from there would be given instead of this one of each rank alone "
                "(use_collectives=False): save to another folder"
            )
        self._before = self._names_in_folder()
        return replace(plan, storage_data=_StoragePrefix(file_names.prefix(self.rank, self._before)))

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        if self.use_collectives:
            self._before = self._names_in_folder()
        token = file_names.token(self._before)
        return [
            replace(plan, storage_data=_StoragePrefix(f"__{rank}_{token}")) if plan.storage_data is None else plan
            for rank, plan in enumerate(plans)
        ]

    def _names_in_folder(self) -> list[str]:
        try:
            return [os.path.basename(path) for path in self.fs.ls(self.path)]
        except NotImplementedError:
            if self._metadata_exists():
                raise
            return []

    def _metadata_exists(self) -> bool:
        return self.fs.exists(self._get_metadata_path(None if self.use_collectives else 0))

    def _get_metadata_path(self, rank: int | None = None) -> AnyPath:
        return self.fs.concat_path(self.path, file_names.metadata_of_rank(rank))

    # -- data

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        prefix: str = plan.storage_data.prefix
        groups = shared_out(self.thread_count, plan.items) if self.single_file_per_rank else [[item] for item in plan.items]
        files = [FileOfItems(f"{prefix}{number}{file_names.SUFFIX}", items) for number, items in enumerate(groups)]
        return self._write_files(files, planner)

    def _write_files(self, files: list[FileOfItems], planner: SavePlanner) -> Future[list[WriteResult]]:
        results = write_all(
            files,
            self._new_file,
            planner,
            self.transforms,
            threads=self.thread_count,
            copy_ahead=self.per_thread_copy_ahead,
            serialization_format=self.serialization_format,
        )
        if self.sync_files and files:
            self.fs.sync_folder(self.path)
        return finished(results)

    @contextmanager
    def _new_file(self, name: str) -> Iterator[Any]:
        """A stream for a file that has its name when the block has ended without an exception, and is on the disk then."""
        temporary = file_names.temporary(name)
        path = self.fs.concat_path(self.path, temporary)
        try:
            with self.fs.create_stream(path, "wb") as stream:
                if self.sync_files:
                    yield stream
                    durable_stream.sync(stream)
                else:
                    durable_stream.leave_to_system(stream)
                    yield stream
            self._made.append(name)
            self.fs.rename(path, self.fs.concat_path(self.path, name))
        except BaseException:
            self._remove([temporary])
            raise

    # -- the end

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        metadata.version = VERSION
        metadata.storage_data = {result.index: result.storage_data for of_rank in results for result in of_rank}
        metadata.storage_meta = self.storage_meta()
        name = file_names.metadata_of_rank(None if self.use_collectives else self.rank)
        with self._new_file(name) as stream:
            stream.write(metadata_file.dump(metadata))
        if self.sync_files:
            self.fs.sync_folder(self.path)
            with suppress(PermissionError):  # the folder around it, which may have it since this save only, may be closed to us
                self.fs.sync_folder(os.path.dirname(os.path.abspath(self.path)))
        if self.use_collectives:
            used = {place.relative_path for place in metadata.storage_data.values() if hasattr(place, "relative_path")}
            self._remove(file_names.left_over(self._before, used, kept=[name]))

    def _abandon(self) -> None:
        """The save failed, and every rank knows: remove what this rank has written, unless the checkpoint in the folder is made of it after all (the
        last step can fail when the new `.metadata` has its name already)."""
        names = file_names.METADATA, file_names.metadata_of_rank(self.rank)
        try:
            if not any(self._is_made_of_this_save(name) for name in names):
                self._remove([name for name in self._made if name not in names])
        except Exception:  # nobody can tell any more: remove nothing
            return

    def _is_made_of_this_save(self, name: str) -> bool:
        """Whether a file of metadata names a file that this rank has made."""
        path = self.fs.concat_path(self.path, name)
        if not self.fs.exists(path):
            return False
        with self.fs.create_stream(path, "rb") as stream:
            places = metadata_file.parse(stream.read(), name).storage_data or {}
        return any(place.relative_path in self._made for place in places.values())

    def _remove(self, names: list[str]) -> None:
        for name in names:
            with suppress(OSError):  # somebody else has removed it, or may: the checkpoint does not depend on it
                self.fs.rm_file(self.fs.concat_path(self.path, name))

    def stage(self, state_dict: STATE_DICT_TYPE) -> STATE_DICT_TYPE:
        """A copy of the state in main memory, which training cannot change any more."""
        self.per_thread_copy_ahead = 0  # the copy is in main memory: nothing is fetched from a GPU later
        return super().stage(state_dict)

    def storage_meta(self) -> StorageMeta | None:
        return StorageMeta(checkpoint_id=self.checkpoint_id, save_id=self.save_id)

    @property
    def checkpoint_id(self) -> AnyPath:
        """Where the checkpoint goes."""
        return self.path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: AnyPath) -> bool:
        return FileSystem.validate_checkpoint_id(checkpoint_id)


_FileSystemWriter = FileSystemWriter  # without staging in PyTorch
