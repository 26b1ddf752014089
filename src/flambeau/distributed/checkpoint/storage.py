"""Storages: the two interfaces that put plans on a disk and take them from there."""

from __future__ import annotations

import abc
import os
from dataclasses import dataclass
from typing import Any

from flambeau.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta
from flambeau.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner
from flambeau.futures import Future

__all__ = ["StorageReader", "StorageWriter", "WriteResult"]


@dataclass(frozen=True)
class WriteResult:
    """What became of one item of a plan: its size, and where it is."""

    index: MetadataIndex
    size_in_bytes: int
    storage_data: Any


class StorageWriter(abc.ABC):
    """Writes plans. In the order of the calls of one save:

    reset                   every rank: a new save begins
    set_up_storage_writer   every rank
    prepare_local_plan      every rank, after the planner's create_local_plan
    prepare_global_plan     coordinator, after the planner's create_global_plan
    write_data              every rank
    finish                  coordinator, when every rank has written: makes the checkpoint what readers find
    """

    @abc.abstractmethod
    def reset(self, checkpoint_id: str | os.PathLike | None = None) -> None:
        """Begin a new save, perhaps to another place."""

    @abc.abstractmethod
    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Get ready on this rank."""

    @abc.abstractmethod
    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """The plan of this rank, with what the storage wants to tell the coordinator."""

    @abc.abstractmethod
    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """The plans of all ranks, with what the storage wants to tell each of them."""

    @abc.abstractmethod
    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write everything that the plan of this rank names."""

    @abc.abstractmethod
    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Every rank has written: complete the checkpoint."""

    @classmethod
    @abc.abstractmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike) -> bool:
        """Whether this storage can write to such a place."""

    def storage_meta(self) -> StorageMeta | None:
        """What the metadata says about this save."""
        return None


class StorageReader(abc.ABC):
    """Reads plans. In the order of the calls of one load:

    reset                   every rank: a new load begins
    read_metadata           coordinator
    set_up_storage_reader   every rank
    prepare_local_plan      every rank, after the planner's create_local_plan
    prepare_global_plan     coordinator, after the planner's create_global_plan
    read_data               every rank
    """

    @abc.abstractmethod
    def reset(self, checkpoint_id: str | os.PathLike | None = None) -> None:
        """Begin a new load, perhaps from another place."""

    @abc.abstractmethod
    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """What the checkpoint has."""

    @abc.abstractmethod
    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Get ready on this rank."""

    @abc.abstractmethod
    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """The plan of this rank, with what the storage wants to tell the coordinator."""

    @abc.abstractmethod
    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """The plans of all ranks, with what the storage wants to tell each of them."""

    @abc.abstractmethod
    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read everything that the plan of this rank names, and give it to the planner."""

    @classmethod
    @abc.abstractmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike) -> bool:
        """Whether this storage can read from such a place."""
