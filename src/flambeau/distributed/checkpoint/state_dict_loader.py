"""`load`: every rank reads what its state asks for, however many ranks have saved and however they had cut the tensors.

every rank    which stretches of which saved boxes do I need? --> coordinator: settled --> read them into place
"""

from __future__ import annotations

import inspect
import os
import warnings
from typing import Any

from flambeau.distributed.checkpoint._storage_utils import _storage_setup
from flambeau.distributed.checkpoint.default_planner import DefaultLoadPlanner, _EmptyStateDictLoadPlanner
from flambeau.distributed.checkpoint.logger import _dcp_method_logger
from flambeau.distributed.checkpoint.metadata import Metadata
from flambeau.distributed.checkpoint.old_order import storage_may_be_second
from flambeau.distributed.checkpoint.planner import LoadPlan, LoadPlanner
from flambeau.distributed.checkpoint.state_dict_saver import _alone, _set_up
from flambeau.distributed.checkpoint.stateful import Stateful
from flambeau.distributed.checkpoint.steps import _DistWrapper
from flambeau.distributed.checkpoint.storage import StorageReader

__all__ = ["load", "load_state_dict"]


@_dcp_method_logger(log_exceptions=True)
@storage_may_be_second("storage_reader")
def load(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike | None = None,
    storage_reader: StorageReader | None = None,
    planner: LoadPlanner | None = None,
    process_group: Any = None,
    no_dist: bool = False,
) -> None:
    """Fill a state from a checkpoint, in place: tensors keep their memory, other entries are replaced, and objects with `load_state_dict` are given theirs.

    The state says what is wanted: entries that the checkpoint has besides are not read, and entries that it lacks are an error (unless
    planner=DefaultLoadPlanner(allow_partial_load=True)). DTensors are filled with the part of each rank, wherever that was saved. Meta tensors get memory.
    Every rank of the group calls this; a failure on any of them is a CheckpointException on all.

        state = {"model": model.state_dict(), "step": 0}
        dist.checkpoint.load(state, checkpoint_id="checkpoint")
        model.load_state_dict(state["model"])
    """
    alone = _alone(no_dist, "load")
    reader = _storage_setup(storage_reader, checkpoint_id, reader=True)
    keys = sorted(state_dict)
    wanted = {key: value.state_dict() if isinstance(value, Stateful) else value for key, value in ((key, state_dict[key]) for key in keys)}
    _load_state_dict(state_dict=wanted, storage_reader=reader, process_group=process_group, no_dist=alone, planner=planner)
    for key in keys:
        value = state_dict.get(key)
        if isinstance(value, Stateful):
            value.load_state_dict(wanted[key])
        elif key in state_dict:
            state_dict[key] = wanted[key]


def load_state_dict(
    state_dict: dict[str, Any],
    storage_reader: StorageReader,
    process_group: Any = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: LoadPlanner | None = None,
) -> None:
    """The old form of `load`, which PyTorch is going to remove."""
    warnings.warn(
        "`load_state_dict` is deprecated and will be removed in future versions. Please use `load` instead.", FutureWarning, stacklevel=2
    )
    storage_reader.reset()
    _load_state_dict(state_dict, storage_reader, process_group, coordinator_rank, no_dist, planner)


def _load_state_dict(
    state_dict: dict[str, Any],
    storage_reader: StorageReader,
    process_group: Any = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: LoadPlanner | None = None,
) -> None:
    ranks = _DistWrapper(process_group, not no_dist, coordinator_rank)
    planner = DefaultLoadPlanner() if planner is None else planner

    def local_step() -> LoadPlan:
        metadata, is_shared = _metadata(storage_reader, ranks.rank)
        planner.set_up_planner(state_dict, metadata, ranks.is_coordinator)
        _set_up(storage_reader.set_up_storage_reader, metadata, ranks.is_coordinator, rank=ranks.rank, use_collectives=is_shared)
        return storage_reader.prepare_local_plan(planner.create_local_plan())

    def global_step(plans: list[LoadPlan]) -> list[LoadPlan]:
        return storage_reader.prepare_global_plan(planner.create_global_plan(plans))

    plan = ranks.reduce_scatter("plan", local_step, global_step)

    def read_data() -> None:
        storage_reader.read_data(planner.finish_plan(plan), planner).wait()

    ranks.all_gather("read", read_data)


def _metadata(reader: StorageReader, rank: int) -> tuple[Metadata, bool]:
    """(the metadata of the checkpoint, whether they are those of all ranks): a checkpoint saved without collectives has some for each rank."""
    try:
        return reader.read_metadata(), True
    except FileNotFoundError as problem:
        takes_rank = any(
            parameter.kind is parameter.VAR_KEYWORD for parameter in inspect.signature(reader.read_metadata).parameters.values()
        )
        try:
            if not takes_rank:
                raise
            return reader.read_metadata(rank=rank), False
        except FileNotFoundError as of_rank:
            place = getattr(reader, "checkpoint_id", "the storage")
            why = f"global metadata read failed: {problem}; rank local metadata read failed: {of_rank}"
            raise AssertionError(
                f"metadata is None; {why}. There is no complete checkpoint in {place}: is this the folder itself, or one above it? Was its save interrupted?"
            ) from problem


def _load_state_dict_from_keys(
    keys: set[str] | str | None = None,
    *,
    checkpoint_id: str | os.PathLike | None = None,
    storage_reader: StorageReader | None = None,
    process_group: Any = None,
) -> dict[str, Any]:
    """A state made from the checkpoint: all of it, or the entries named by `keys`, without anything to fill. Every rank is given all of it.

    state = _load_state_dict_from_keys({"model"}, checkpoint_id="checkpoint")
    """
    alone = _alone(False, "load")
    reader = _storage_setup(storage_reader, checkpoint_id, reader=True)
    wanted = {keys} if isinstance(keys, str) else keys
    state: dict[str, Any] = {}
    planner = _EmptyStateDictLoadPlanner(keys=wanted or None)
    _load_state_dict(state_dict=state, storage_reader=reader, process_group=process_group, no_dist=alone, planner=planner)
    return state
