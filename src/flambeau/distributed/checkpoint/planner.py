"""Plans: what is written and read, item by item, and the two interfaces that make them.

A planner decides *what* (which boxes, under which names), a storage decides *where*. On every rank the planner proposes a local plan; the
coordinator sees all of them and settles them; every rank finishes its own.
"""

from __future__ import annotations

import abc
import io
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from flambeau.distributed.checkpoint.metadata import (
    STATE_DICT_TYPE,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
)
from flambeau.tensor import Size, Tensor

__all__ = [
    "BytesIOWriteData", "LoadItemType", "LoadPlan", "LoadPlanner", "ReadItem", "SavePlan", "SavePlanner", "TensorWriteData", "WriteItem",
    "WriteItemType",
]  # fmt: skip


class WriteItemType(Enum):
    """A whole tensor, a box of one, or bytes."""

    TENSOR = auto()
    SHARD = auto()
    BYTE_IO = auto()


class LoadItemType(Enum):
    """Elements of a tensor, or bytes."""

    TENSOR = auto()
    BYTE_IO = auto()


@dataclass(frozen=True)
class BytesIOWriteData:
    """How many bytes an object takes."""

    nbytes: int


@dataclass(frozen=True)
class TensorWriteData:
    """A box, and the tensor it is cut from."""

    chunk: ChunkStorageMetadata
    properties: TensorProperties
    size: Size


@dataclass(frozen=True)
class WriteItem:
    """One thing that a rank writes."""

    index: MetadataIndex
    type: WriteItemType
    bytes_io_data: BytesIOWriteData | None = None
    tensor_data: TensorWriteData | None = None

    def tensor_storage_size(self) -> int | None:
        """The bytes of the whole tensor that the item belongs to; None for what is no tensor."""
        if self.tensor_data is None:
            return None
        return self.tensor_data.size.numel() * self.tensor_data.properties.dtype.itemsize


@dataclass(frozen=True)
class ReadItem:
    """One stretch of a saved box that goes into a box of a tensor here."""

    type: LoadItemType
    dest_index: MetadataIndex  # which tensor here
    dest_offsets: Size  # from where in its box on
    storage_index: MetadataIndex  # which saved box
    storage_offsets: Size  # from where in it on
    lengths: Size


@dataclass(frozen=True)
class SavePlan:
    """What one rank writes. `usable` is False for one that says: as the last time."""

    items: list[WriteItem]
    storage_data: Any = None
    planner_data: Any = None
    usable: bool = True


@dataclass
class LoadPlan:
    """What one rank reads."""

    items: list[ReadItem]
    storage_data: Any = None
    planner_data: Any = None


class SavePlanner(abc.ABC):
    """Decides what is written. One object serves one save:

    set_up_planner        every rank: here is the state
    create_local_plan     every rank: this is what I would write
    create_global_plan    coordinator: this is what each of us writes, and how the checkpoint is described
    finish_plan           every rank: a last look at my part
    resolve_data          every rank, for each item: the tensor or bytes it stands for
    """

    # What planners that cache plans compare with, by the name of the planner's class.
    _cached_save_plan: dict[str, SavePlan] = {}
    _cached_final_save_plan: dict[str, SavePlan] = {}
    _cached_all_plans: dict[str, list[SavePlan]] = {}
    _cached_global_plan: dict[str, list[SavePlan]] = {}
    _cached_metadata: dict[str, Metadata] = {}

    @abc.abstractmethod
    def set_up_planner(self, state_dict: STATE_DICT_TYPE, storage_meta: StorageMeta | None = None, is_coordinator: bool = False) -> None:
        """Remember what shall be saved."""

    @abc.abstractmethod
    def create_local_plan(self) -> SavePlan:
        """What this rank would write."""

    @abc.abstractmethod
    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        """What every rank writes, and what the checkpoint is then."""

    @abc.abstractmethod
    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        """The plan that the coordinator sent, as this rank carries it out."""

    @abc.abstractmethod
    def resolve_data(self, write_item: WriteItem) -> Tensor | io.BytesIO:
        """What is to be written for an item. Called from the threads that write."""


class LoadPlanner:
    """Decides what is read. One object serves one load:

    set_up_planner        every rank: here is the state to be filled, and what the checkpoint has
    create_local_plan     every rank: this is what I need
    create_global_plan    coordinator: this is what each of us reads
    finish_plan           every rank: a last look at my part
    load_bytes            every rank, for each object: here are its bytes
    resolve_tensor        every rank, for each stretch of a tensor: where shall it go?
    commit_tensor         every rank: it is there
    """

    @abc.abstractmethod
    def set_up_planner(self, state_dict: STATE_DICT_TYPE, metadata: Metadata | None = None, is_coordinator: bool = False) -> None:
        """Remember what shall be filled, and from what."""

    @abc.abstractmethod
    def create_local_plan(self) -> LoadPlan:
        """What this rank needs."""

    @abc.abstractmethod
    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        """What every rank reads."""

    @abc.abstractmethod
    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        """The plan that the coordinator sent, as this rank carries it out."""

    @abc.abstractmethod
    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Put an object back, given its bytes."""

    def resolve_bytes(self, read_item: ReadItem) -> io.BytesIO:
        """A buffer that the bytes of an object shall be read into."""
        raise NotImplementedError(f"{type(self).__name__}.resolve_bytes is not implemented: load_bytes is given the bytes instead")

    @abc.abstractmethod
    def resolve_tensor(self, read_item: ReadItem) -> Tensor:
        """The stretch of memory that a tensor's elements shall be copied to."""

    @abc.abstractmethod
    def commit_tensor(self, read_item: ReadItem, tensor: Tensor) -> None:
        """Called with what `resolve_tensor` gave, when the elements are there."""
