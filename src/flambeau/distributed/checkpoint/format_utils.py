"""Between files of torch.save and checkpoints of many processes.

dcp_to_torch_save                                      folder -> file, in one process
torch_save_to_dcp                                      file -> folder, in one process
BroadcastingTorchSaveReader, DynamicMetaLoadPlanner    file -> the states of many processes, read by one of them

python -m torch.distributed.checkpoint.format_utils dcp_to_torch folder file.pt
"""

from __future__ import annotations

import argparse
import os
from enum import Enum
from typing import Any

from flambeau import distributed as dist
from flambeau.distributed.checkpoint._nested_dict import flatten_state_dict
from flambeau.distributed.checkpoint.default_planner import DefaultLoadPlanner, _EmptyStateDictLoadPlanner
from flambeau.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from flambeau.distributed.checkpoint.folder_reader import fill
from flambeau.distributed.checkpoint.metadata import STATE_DICT_TYPE, Metadata, TensorProperties, TensorStorageMetadata
from flambeau.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from flambeau.distributed.checkpoint.planner_helpers import _create_chunk_list
from flambeau.distributed.checkpoint.resharding import local_tensor, narrow_tensor_by_index
from flambeau.distributed.checkpoint.state_dict_loader import _load_state_dict
from flambeau.distributed.checkpoint.state_dict_saver import _save_state_dict
from flambeau.distributed.checkpoint.storage import StorageReader
from flambeau.futures import Future, finished
from flambeau.serialization import load, save
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import empty

__all__ = ["BroadcastingTorchSaveReader", "DynamicMetaLoadPlanner", "dcp_to_torch_save", "torch_save_to_dcp"]


def dcp_to_torch_save(dcp_checkpoint_dir: str | os.PathLike, torch_save_path: str | os.PathLike) -> None:
    """Write the whole state of a checkpoint to a file, as torch.save does. Needs memory for all of it.

    dcp_to_torch_save("checkpoint", "checkpoint.pt")
    """
    state: STATE_DICT_TYPE = {}
    _load_state_dict(state, storage_reader=FileSystemReader(dcp_checkpoint_dir), planner=_EmptyStateDictLoadPlanner(), no_dist=True)
    save(state, torch_save_path)


def torch_save_to_dcp(torch_save_path: str | os.PathLike, dcp_checkpoint_dir: str | os.PathLike) -> None:
    """Write what a file of torch.save has as a checkpoint. The file can run no code: classes that it names are allowed with
    torch.serialization.add_safe_globals.

        torch_save_to_dcp("checkpoint.pt", "checkpoint")
    """
    state = load(torch_save_path)
    if not isinstance(state, dict):
        raise TypeError(f"{torch_save_path} holds a {type(state).__name__}: expected a dictionary, as a model's state_dict() is")
    _save_state_dict(state, storage_writer=FileSystemWriter(dcp_checkpoint_dir), no_dist=True)


class BroadcastingTorchSaveReader(StorageReader):
    """Reads a file of torch.save on the coordinator, which sends every rank the tensors, one at a time. Together with `DynamicMetaLoadPlanner`:

    dist.checkpoint.load(state, checkpoint_id="checkpoint.pt", storage_reader=BroadcastingTorchSaveReader(), planner=DynamicMetaLoadPlanner())
    """

    def __init__(self, checkpoint_id: str | os.PathLike | None = None, coordinator_rank: int = 0) -> None:
        self.checkpoint_id = checkpoint_id
        self.coordinator_rank = coordinator_rank

    def read_metadata(self) -> Metadata:  # type: ignore[override]
        """Nothing: the planner says what is there, by what is asked for."""
        return Metadata(state_dict_metadata={})

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool) -> None:  # type: ignore[override]
        self.is_coordinator = is_coordinator
        rank = dist.get_rank() if dist.is_initialized() else 0
        if is_coordinator and rank != self.coordinator_rank:
            raise AssertionError(f"rank {rank} coordinates this load, and the reader was told that rank {self.coordinator_rank} would")
        if self.checkpoint_id is None:
            raise AssertionError("which file? Pass checkpoint_id= to load() or to BroadcastingTorchSaveReader()")

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:  # type: ignore[override]
        return global_plan

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        assert isinstance(planner, DefaultLoadPlanner)
        saved: dict[str, Any] = {}
        if self.is_coordinator:
            assert self.checkpoint_id is not None
            saved = load(self.checkpoint_id, map_location="cpu")
            if planner.flatten_state_dict:
                saved, _ = flatten_state_dict(saved)
        wanted: dict[str, list[ReadItem]] = {}
        for item in plan.items:
            wanted.setdefault(item.storage_index.fqn, []).append(item)
        for name, value in planner.state_dict.items():  # in this order on every rank, whether it has a part of the tensor or not
            if any(item.type is LoadItemType.BYTE_IO for item in wanted.get(name, ())) or not isinstance(value, Tensor):
                raise RuntimeError(
                    f"Non-tensor value identified at {name}. At this time BroadcastingTorchSaveReader only supports loading Tensors: take it out of the state, and "
                    "read it with torch.load on every rank"
                )
            whole = self._sent(name, value, saved)
            for item in wanted.get(name, ()):
                start = [a + b for a, b in zip(item.storage_index.offset or (), item.storage_offsets, strict=True)]
                fill(planner, item, narrow_tensor_by_index(whole, start, item.lengths))
        return finished(None)

    def _sent(self, name: str, wanted: Tensor, saved: dict[str, Any]) -> Tensor:
        """A whole tensor of the file, on every rank."""
        device = local_tensor(wanted).device
        if not self.is_coordinator:
            whole = empty(wanted.size(), dtype=wanted.dtype, device=device)
        else:
            found = saved.get(name)
            if not isinstance(found, Tensor) or found.size() != wanted.size():
                what = "no such name" if found is None else f"a {type(found).__name__} of shape {tuple(getattr(found, 'shape', ()))}"
                raise RuntimeError(f"{self.checkpoint_id} has {what} at {name!r}, where a tensor of shape {tuple(wanted.size())} is wanted")
            whole = found.detach().to(device=device, dtype=wanted.dtype).contiguous()
        if dist.is_initialized():
            dist.broadcast(whole, src=self.coordinator_rank)
        return whole

    def reset(self, checkpoint_id: str | os.PathLike | None = None) -> None:
        self.checkpoint_id = checkpoint_id

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike) -> bool:
        return os.path.isfile(checkpoint_id)


class DynamicMetaLoadPlanner(DefaultLoadPlanner):
    """Takes what is asked for as what is there: for storages without metadata."""

    def set_up_planner(self, state_dict: STATE_DICT_TYPE, metadata: Metadata | None = None, is_coordinator: bool = False) -> None:
        super().set_up_planner(state_dict, metadata, is_coordinator)
        described: dict[str, Any] = {}
        for name, value in self.state_dict.items():
            if not isinstance(value, Tensor):
                raise RuntimeError(
                    f"Non-tensor value identified at {name}. At this time DynamicMetaLoadPlanner only supports loading Tensors: take it out of the state"
                )
            described[name] = TensorStorageMetadata(TensorProperties(dtype=value.dtype), value.size(), _create_chunk_list(value))
        self.metadata = Metadata(described)


class FormatMode(Enum):
    """The two ways of the command."""

    TORCH_TO_DCP = "torch_to_dcp"
    DCP_TO_TORCH = "dcp_to_torch"


def main() -> None:
    """The command: a mode, where from, where to."""
    parser = argparse.ArgumentParser(description="Convert between files of torch.save and folders of torch.distributed.checkpoint.")
    parser.add_argument("mode", choices=[mode.value for mode in FormatMode], help="which way")
    parser.add_argument("src", help="path to the source")
    parser.add_argument("dst", help="path to the destination")
    chosen = parser.parse_args()
    if not os.path.exists(chosen.src):
        parser.error(f"{chosen.src} does not exist")
    print(f"Converting checkpoint from {chosen.src} to {chosen.dst} using method: '{chosen.mode}'")
    convert = torch_save_to_dcp if chosen.mode == FormatMode.TORCH_TO_DCP.value else dcp_to_torch_save
    convert(chosen.src, chosen.dst)


if __name__ == "__main__":
    main()
