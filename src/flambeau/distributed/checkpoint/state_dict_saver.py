"""`save` and `async_save`: every rank writes its part of a state, and the parts become a checkpoint at one moment.

every rank    plan what I have --.                .--> write my part --.
coordinator                      '--> settle it --'                    '--> complete the checkpoint
"""

from __future__ import annotations

import inspect
import os
import warnings
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from typing import Any

from flambeau import devices
from flambeau import distributed as dist
from flambeau.distributed.checkpoint import background
from flambeau.distributed.checkpoint._storage_utils import _storage_setup
from flambeau.distributed.checkpoint.api import CheckpointException
from flambeau.distributed.checkpoint.default_planner import DefaultSavePlanner
from flambeau.distributed.checkpoint.logger import _dcp_method_logger
from flambeau.distributed.checkpoint.metadata import STATE_DICT_TYPE, Metadata
from flambeau.distributed.checkpoint.old_order import storage_may_be_second
from flambeau.distributed.checkpoint.planner import SavePlan, SavePlanner
from flambeau.distributed.checkpoint.staging import AsyncStager, DefaultStager, StagingOptions
from flambeau.distributed.checkpoint.stateful import Stateful
from flambeau.distributed.checkpoint.steps import _DistWrapper
from flambeau.distributed.checkpoint.storage import StorageWriter, WriteResult
from flambeau.distributed.collectives.world import _get_default_group

__all__ = ["AsyncCheckpointerType", "AsyncSaveResponse", "async_save", "save", "save_state_dict"]


@_dcp_method_logger(log_exceptions=True)
@storage_may_be_second("storage_writer")
def save(
    state_dict: STATE_DICT_TYPE,
    *,
    checkpoint_id: str | os.PathLike | None = None,
    storage_writer: StorageWriter | None = None,
    planner: SavePlanner | None = None,
    process_group: Any = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Metadata:
    """Save a state: every rank calls this with its own, and writes what is its part. Tensors that all ranks have are written once, of a DTensor every rank
    writes what it holds. Objects with `state_dict` and `load_state_dict` are asked for their state.

    checkpoint_id     the folder; another storage than a folder is given as `storage_writer`
    planner           decides what is written under which name
    process_group     the ranks that save together
    no_dist           this process saves alone
    use_collectives   False: ranks do not talk to each other, each writes metadata of its own, and the same number of ranks must load

    A failure on any rank is a CheckpointException on all of them. A checkpoint that the folder has already is replaced when the new one is complete: if
    anything fails or any process is killed at any moment, the old one is still there.

        dist.checkpoint.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, checkpoint_id="checkpoint")
    """
    alone = _alone(no_dist, "save")
    background.wait_for_earlier(storage_writer, checkpoint_id)
    writer = _storage_setup(storage_writer, checkpoint_id, reader=False)
    return _save_state_dict(
        state_dict=_stateful_to_state_dict(state_dict),
        storage_writer=writer,
        process_group=process_group,
        no_dist=alone,
        planner=planner,
        use_collectives=use_collectives,
    )


def save_state_dict(
    state_dict: STATE_DICT_TYPE,
    storage_writer: StorageWriter,
    process_group: Any = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: SavePlanner | None = None,
) -> Metadata:
    """The old form of `save`, which PyTorch is going to remove."""
    warnings.warn(
        "`save_state_dict` is deprecated and will be removed in future versions. Please use `save` instead.", FutureWarning, stacklevel=2
    )
    storage_writer.reset()
    return _save_state_dict(state_dict, storage_writer, process_group, coordinator_rank, no_dist, planner)


class AsyncCheckpointerType(Enum):
    """Who writes: a thread of this process, or a process of its own."""

    THREAD = "thread"
    PROCESS = "process"


@dataclass
class AsyncSaveResponse:
    """What async_save returns when the copy is made in the background, too."""

    staging_completion: Future[None]  # the copy is complete: the state may be changed
    upload_completion: Future[None]  # the checkpoint is complete


@_dcp_method_logger(log_exceptions=True)
def async_save(
    state_dict: STATE_DICT_TYPE,
    *,
    checkpoint_id: str | os.PathLike | None = None,
    storage_writer: StorageWriter | None = None,
    planner: SavePlanner | None = None,
    process_group: Any = None,
    async_checkpointer_type: AsyncCheckpointerType = AsyncCheckpointerType.THREAD,
    async_stager: AsyncStager | None = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Future | AsyncSaveResponse:
    """Copy the state, return, and have a thread save the copy as `save` does. The Future's result is the Metadata; look at it: it raises what failed.

    The thread talks to those of the other ranks over a group of its own, so that training can go on communicating. A save to the same folder, or by the same
    writer, waits for the one before.

        saving = dist.checkpoint.async_save(state, checkpoint_id=f"checkpoint/{step}")
        ...                                                # train
        saving.result()
    """
    alone = _alone(no_dist, "save")
    if async_checkpointer_type is AsyncCheckpointerType.PROCESS:
        raise NotImplementedError(
            "async_save(async_checkpointer_type=PROCESS): there is no process for saving. THREAD writes in the background, too: writing lets Python go on"
        )
    background.wait_for_earlier(storage_writer, checkpoint_id)
    group = None if alone else _group_of_saves(process_group)
    own: DefaultStager | None = None
    if async_stager is None:
        if isinstance(storage_writer, AsyncStager):
            async_stager = storage_writer
        else:
            async_stager = own = DefaultStager(StagingOptions(False, False, False, False))
    writer = _storage_setup(storage_writer, checkpoint_id, reader=False)
    staged = async_stager.stage(_stateful_to_state_dict(state_dict))

    def write() -> Metadata:
        try:
            return _save_state_dict(
                state_dict=staged.result() if isinstance(staged, Future) else staged,
                storage_writer=writer,
                process_group=process_group if group is None else group,
                no_dist=alone,
                planner=planner,
                use_collectives=use_collectives,
            )
        finally:
            if own is not None:
                own.close()

    saving = background.start(write, writer, group)
    if isinstance(staged, Future):
        complete: Future[None] = Future()
        staged.add_done_callback(lambda done: complete.set_exception(done.exception()) if done.exception() else complete.set_result(None))
        return AsyncSaveResponse(staging_completion=complete, upload_completion=saving)
    if async_stager.should_synchronize_after_execute:
        async_stager.synchronize_staging()
    return saving


_GROUPS = "_checkpoint_group"  # attribute of a group: the one that saves in the background use beside it


def _group_of_saves(process_group: Any) -> Any:
    """A group of the same ranks for the thread that saves, made once: its messages do not mix with those of training."""
    parent = process_group or _get_default_group()
    if devices.device("cpu") not in parent._device_types:
        raise AssertionError(
            "A CPU backend must be enabled for async save; try initializing process group with 'cpu:gloo,cuda:nccl'. This one is for "
            f"{', '.join(map(str, parent._device_types))}"
        )
    if parent.size() == 1:
        return process_group
    group = vars(parent).get(_GROUPS)
    if group is None:
        group = dist.new_group(dist.get_process_group_ranks(parent), backend="gloo", use_local_synchronization=process_group is not None)
        setattr(parent, _GROUPS, group)
    return group


# -- what all of them do -------------------------------------------------------------------------------------------


def _alone(no_dist: bool, what: str) -> bool:
    """Whether this process saves or loads alone: it says so, or belongs to no group."""
    if not no_dist and not dist.is_initialized():
        warnings.warn(
            f"torch.distributed is disabled, unavailable or uninitialized, assuming the intent is to {what} in a single process. no_dist=True says that it is",
            stacklevel=4,
        )
        return True
    return no_dist


def _stateful_to_state_dict(state_dict: STATE_DICT_TYPE) -> STATE_DICT_TYPE:
    """The state, with objects replaced by what they say theirs is."""
    return {key: value.state_dict() if isinstance(value, Stateful) else value for key, value in state_dict.items()}


def _save_state_dict(
    state_dict: STATE_DICT_TYPE,
    storage_writer: StorageWriter,
    process_group: Any = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: SavePlanner | None = None,
    use_collectives: bool = True,
) -> Metadata:
    ranks = _DistWrapper(process_group, not no_dist, coordinator_rank)
    planner = DefaultSavePlanner() if planner is None else planner
    metadata: Metadata | None = None

    def local_step() -> SavePlan:
        planner.set_up_planner(state_dict=state_dict, storage_meta=storage_writer.storage_meta(), is_coordinator=ranks.is_coordinator)
        _set_up(storage_writer.set_up_storage_writer, ranks.is_coordinator, rank=ranks.rank, use_collectives=use_collectives)
        return storage_writer.prepare_local_plan(planner.create_local_plan())

    def global_step(plans: list[SavePlan]) -> list[SavePlan]:
        nonlocal metadata
        plans, metadata = planner.create_global_plan(plans)
        return storage_writer.prepare_global_plan(plans)

    def write_data() -> list[WriteResult]:
        return storage_writer.write_data(planner.finish_plan(plan), planner).wait()

    def finish_checkpoint(results: list[list[WriteResult]]) -> Metadata:
        assert metadata is not None
        storage_writer.finish(metadata=metadata, results=results)
        return metadata

    plan: SavePlan | None = None

    def without_others() -> Metadata:
        nonlocal plan
        (plan,) = global_step([local_step()])
        return finish_checkpoint([write_data()])

    try:
        if not use_collectives:
            return ranks.all_gather("write", without_others)[ranks.rank]
        plan = ranks.reduce_scatter("plan", local_step, global_step)
        return ranks.all_reduce("write", write_data, finish_checkpoint)
    except CheckpointException:
        abandon = getattr(storage_writer, "_abandon", None)
        if abandon is not None:
            abandon()
        raise


def _set_up(method: Any, *args: Any, **more: Any) -> None:
    """Call a storage's method with what it takes: those of older libraries have no **kwargs."""
    takes_more = any(parameter.kind is parameter.VAR_KEYWORD for parameter in inspect.signature(method).parameters.values())
    method(*args, **(more if takes_more else {}))
