"""Which storage a checkpoint id belongs to."""

from __future__ import annotations

import os
from typing import Any

from flambeau.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter


def _storage_setup(storage: Any, checkpoint_id: str | os.PathLike | None, reader: bool = False) -> Any:
    """The given storage, reset to the id; or one for the id."""
    if storage is not None:
        if checkpoint_id is not None:
            storage.reset(checkpoint_id)
        return storage
    if not checkpoint_id:
        raise RuntimeError(
            "`checkpoint_id` must be specified if storage_reader/storage_writer is None: the folder of the checkpoint, checkpoint_id='checkpoints/step_100' "
            "for example"
        )
    if "://" in os.fspath(checkpoint_id):
        raise NotImplementedError(
            f"{checkpoint_id} is no folder of this machine: give storage_reader/storage_writer, an object with the methods of StorageReader or StorageWriter"
        )
    kind: Any = FileSystemReader if reader else FileSystemWriter
    if not reader and not kind.validate_checkpoint_id(checkpoint_id):
        raise RuntimeError(
            "Cannot detect which StorageReader or StorageWriter to use. Please specify the storage_reader/storage_writer: "
            f"{checkpoint_id} is not in a folder that can be written to"
        )
    return kind(checkpoint_id)
