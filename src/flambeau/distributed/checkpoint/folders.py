"""File systems: the few things that a checkpoint needs of one. `FileSystem` is this machine's; others inherit from `FileSystemBase`."""

from __future__ import annotations

import abc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from flambeau.distributed.checkpoint import durable_stream
from flambeau.serialization import durable

__all__ = ["FileSystem", "FileSystemBase"]

AnyPath = str | os.PathLike


class FileSystemBase(abc.ABC):
    """What a writer and a reader ask of the place where their files are."""

    @abc.abstractmethod
    @contextmanager
    def create_stream(self, path: AnyPath, mode: str) -> Iterator[Any]:
        """An open file for the time of a `with` block; `mode` is "rb" or "wb"."""

    @abc.abstractmethod
    def concat_path(self, path: AnyPath, suffix: str) -> AnyPath:
        """The path of something in a folder."""

    @abc.abstractmethod
    def rename(self, path: AnyPath, new_path: AnyPath) -> None:
        """Give a file another name; a file that has it already is replaced."""

    @abc.abstractmethod
    def init_path(self, path: AnyPath) -> AnyPath:
        """A path in the form that the other methods take."""

    @abc.abstractmethod
    def mkdir(self, path: AnyPath) -> None:
        """Make a folder, and those around it, unless it is there."""

    @classmethod
    @abc.abstractmethod
    def validate_checkpoint_id(cls, checkpoint_id: AnyPath) -> bool:
        """Whether a checkpoint can be there."""

    @abc.abstractmethod
    def exists(self, path: AnyPath) -> bool:
        """Whether there is such a file or folder."""

    @abc.abstractmethod
    def rm_file(self, path: AnyPath) -> None:
        """Remove a file."""

    def ls(self, path: AnyPath) -> list[str]:
        """The paths of what is in a folder."""
        raise NotImplementedError(
            f"{type(self).__name__}.ls: saving over a checkpoint needs the names in its folder. Implement it, or save to a new folder"
        )

    def sync_folder(self, path: AnyPath) -> None:  # noqa: B027 - object stores have no such thing, and need not say so
        """Make the names in a folder last through a power cut."""


class FileSystem(FileSystemBase):
    """The files of this machine. What is written is on the disk when the writer asks for that, and renaming replaces a file as a whole."""

    @contextmanager
    def create_stream(self, path: AnyPath, mode: str) -> Iterator[IO[bytes]]:
        with durable_stream.writing(os.fspath(path)) if mode == "wb" else open(path, mode) as stream:
            yield stream  # type: ignore[misc]

    def concat_path(self, path: AnyPath, suffix: str) -> AnyPath:
        return Path(path) / suffix

    def init_path(self, path: AnyPath) -> AnyPath:
        return Path(path)

    def rename(self, path: AnyPath, new_path: AnyPath) -> None:
        with durable_stream.naming(os.fspath(new_path)):
            durable.calls.replace(os.fspath(path), os.fspath(new_path))

    def mkdir(self, path: AnyPath) -> None:
        Path(path).mkdir(parents=True, exist_ok=True)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: AnyPath) -> bool:
        """Whether this is a path, and there is a folder on the way to it that can be written to."""
        if isinstance(checkpoint_id, str) and "://" in checkpoint_id:
            return False
        place = Path(checkpoint_id).absolute()
        there = next((folder for folder in (place, *place.parents) if folder.exists()), None)
        return there is not None and os.access(there, os.W_OK)

    def exists(self, path: AnyPath) -> bool:
        return Path(path).exists()

    def rm_file(self, path: AnyPath) -> None:
        durable.calls.unlink(os.fspath(path))

    def ls(self, path: AnyPath) -> list[str]:
        return [os.fspath(found) for found in Path(path).iterdir()]

    def sync_folder(self, path: AnyPath) -> None:
        durable_stream.sync_folder(os.fspath(path))
