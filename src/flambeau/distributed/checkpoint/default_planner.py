"""The planners that `save` and `load` use: every tensor and object under its name, tensors box by box, what several ranks hold alike once."""

from __future__ import annotations

import io
import warnings
from collections import ChainMap
from collections.abc import Iterable
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from flambeau.distributed.checkpoint import _version
from flambeau.distributed.checkpoint._dedup_save_plans import dedup_save_plans
from flambeau.distributed.checkpoint._nested_dict import FLATTEN_MAPPING, flatten_state_dict
from flambeau.distributed.checkpoint._traverse import set_element, traverse_state_dict_v_2_3
from flambeau.distributed.checkpoint.box_check import _validate_global_plan
from flambeau.distributed.checkpoint.metadata import (
    STATE_DICT_TYPE,
    STORAGE_TYPES,
    BytesStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorStorageMetadata,
)
from flambeau.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner, WriteItem, WriteItemType
from flambeau.distributed.checkpoint.planner_helpers import (
    _compare_save_plans,
    _contains_usable_plan,
    _create_read_items,
    _create_write_items,
    _init_state_dict,
    _merge_delta_local_plans,
)
from flambeau.distributed.checkpoint.resharding import narrow_tensor_by_index
from flambeau.distributed.checkpoint.utils import find_state_dict_object
from flambeau.serialization import load, save
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import empty

__all__ = [
    "DefaultLoadPlanner", "DefaultSavePlanner", "create_default_global_load_plan", "create_default_global_save_plan",
    "create_default_local_load_plan", "create_default_local_save_plan",
]  # fmt: skip


class DefaultSavePlanner(SavePlanner):
    """Saves everything in a state.

    flatten_state_dict          nested dictionaries become names with dots, so that their entries can be loaded one by one
    dedup_save_to_lowest_rank   what several ranks hold is written by the first of them, not by the one with the least to write
    enable_plan_caching         ranks whose plans are as last time do not send them again
    """

    def __init__(
        self,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        dedup_replicated_tensors: bool | None = None,
        dedup_save_to_lowest_rank: bool = False,
        enable_plan_caching: bool = False,
    ) -> None:
        self.flatten_state_dict = flatten_state_dict
        self.flatten_sharded_tensors = flatten_sharded_tensors
        self.mappings: FLATTEN_MAPPING = {}
        self.dedup_save_to_lowest_rank = dedup_save_to_lowest_rank
        if dedup_replicated_tensors is not None:
            warnings.warn(
                "DefaultSavePlanner's `dedup_replicated_tensors` argument is being deprecated, and no longer has any effect: what several ranks hold is "
                "always written once. Leave it out",
                stacklevel=2,
            )
        self._cached_plans_key: str = type(self).__name__
        self._enable_plan_caching = enable_plan_caching

    def set_up_planner(self, state_dict: STATE_DICT_TYPE, storage_meta: StorageMeta | None = None, is_coordinator: bool = False) -> None:
        if self.flatten_state_dict:
            state_dict, self.mappings = flatten_state_dict(state_dict)
        self.state_dict = state_dict
        self.is_coordinator = is_coordinator

    def create_local_plan(self) -> SavePlan:
        plan = create_default_local_save_plan(self.state_dict, self.is_coordinator)
        if self.flatten_state_dict:
            plan = replace(plan, planner_data=self.mappings)
        self.plan = plan
        if not self._enable_plan_caching:
            return plan
        key = self._cached_plans_key
        known = SavePlanner._cached_save_plan.get(key)
        SavePlanner._cached_save_plan[key] = plan
        return SavePlan([], usable=False) if known is not None and _compare_save_plans(plan, known) else plan

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        if self._enable_plan_caching:
            settled, self.global_plan, metadata = self._create_global_plan_with_caching(all_plans)
        else:
            self.global_plan, metadata = self._create_global_plan(all_plans)
            settled = self.global_plan
        self.metadata = metadata
        return settled, metadata

    def _dedup_save_plans(self, all_plans: list[SavePlan]) -> list[SavePlan]:
        return dedup_save_plans(all_plans, self.dedup_save_to_lowest_rank)

    def _create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        plans, metadata = create_default_global_save_plan(self._dedup_save_plans(all_plans))
        if self.flatten_state_dict:
            names = [plan.planner_data for plan in all_plans]
            metadata = replace(metadata, planner_data=dict(ChainMap(*names)))
        problems = _validate_global_plan(plans, metadata)
        if problems:
            raise ValueError(
                "Failed to validate global plan: the boxes that the ranks want to write do not make whole tensors\n    "
                + "\n    ".join(problems)
            )
        return plans, metadata

    def _create_global_plan_with_caching(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], list[SavePlan], Metadata]:
        """(what is sent to the ranks, what they write, metadata): plans of ranks for which nothing has changed are sent as "unchanged"."""
        key = self._cached_plans_key
        known = SavePlanner._cached_all_plans.get(key)
        if known is None or len(known) != len(all_plans):
            if not all(plan.usable for plan in all_plans):
                raise RuntimeError(
                    f"{key}: a rank says that its plan is as the last time, and the coordinator has not seen it. Did another rank coordinate then, or another "
                    "number of them? Use enable_plan_caching=False"
                )
            everything = all_plans
        elif not _contains_usable_plan(all_plans) and key in SavePlanner._cached_global_plan:
            unchanged = [SavePlan([], usable=False)] * len(all_plans)
            return unchanged, SavePlanner._cached_global_plan[key], replace(SavePlanner._cached_metadata[key])
        else:
            everything = _merge_delta_local_plans(known, all_plans)
        plans, metadata = self._create_global_plan(everything)
        before = SavePlanner._cached_global_plan.get(key)
        same = before is not None and len(before) == len(plans)
        sent = [
            SavePlan([], usable=False) if same and _compare_save_plans(plan, before[rank]) else plan  # type: ignore[index]
            for rank, plan in enumerate(plans)
        ]
        SavePlanner._cached_all_plans[key] = everything
        SavePlanner._cached_global_plan[key] = plans
        SavePlanner._cached_metadata[key] = replace(metadata)
        return sent, plans, metadata

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        self.plan = self._finish_plan_with_caching(new_plan) if self._enable_plan_caching else new_plan
        return self.plan

    def _finish_plan_with_caching(self, new_plan: SavePlan) -> SavePlan:
        key = self._cached_plans_key
        if not new_plan.usable:
            return replace(SavePlanner._cached_final_save_plan[key], storage_data=new_plan.storage_data)
        SavePlanner._cached_final_save_plan[key] = new_plan
        return new_plan

    def resolve_data(self, write_item: WriteItem) -> Tensor | io.BytesIO:
        return self.transform_object(write_item, self.lookup_object(write_item.index))

    def lookup_object(self, index: MetadataIndex) -> Any:
        """What stands for an index in the state; for planners that inherit from this one."""
        return find_state_dict_object(self.state_dict, index)

    def transform_object(self, write_item: WriteItem, object: Any) -> Any:
        """What is written for it: a tensor as it is, anything else as the bytes of torch.save; for planners that inherit from this one."""
        if write_item.type is not WriteItemType.BYTE_IO:
            return object
        stream = io.BytesIO()
        try:
            save(object, stream)
        except Exception as problem:
            problem.add_note(f"(while saving {write_item.index.fqn!r}, a {type(object).__name__})")
            raise
        stream.seek(0)
        return stream


class DefaultLoadPlanner(LoadPlanner):
    """Fills the tensors of a state in place, and puts objects into it.

    flatten_state_dict   as the checkpoint was saved
    allow_partial_load   leave entries as they are that the checkpoint does not have; otherwise RuntimeError
    """

    def __init__(self, flatten_state_dict: bool = True, flatten_sharded_tensors: bool = True, allow_partial_load: bool = False) -> None:
        self.flatten_state_dict = flatten_state_dict
        self.flatten_sharded_tensors = flatten_sharded_tensors
        self.original_state_dict: STATE_DICT_TYPE = {}
        self.mappings: FLATTEN_MAPPING = {}
        self.allow_partial_load = allow_partial_load

    def set_up_planner(self, state_dict: STATE_DICT_TYPE, metadata: Metadata | None = None, is_coordinator: bool = False) -> None:
        _init_state_dict(state_dict)
        self.original_state_dict = state_dict
        if self.flatten_state_dict:
            state_dict, self.mappings = flatten_state_dict(state_dict)
        self.state_dict = state_dict
        self.metadata = metadata
        self.is_coordinator = is_coordinator

    def create_local_plan(self) -> LoadPlan:
        assert self.metadata is not None
        if self.flatten_state_dict:
            self._use_names_of_2_3(self.metadata)
        return create_default_local_load_plan(self.state_dict, self.metadata, not self.allow_partial_load)

    def _use_names_of_2_3(self, metadata: Metadata) -> None:
        """Flatten as PyTorch 2.3 did, if the checkpoint has those names: lists without tensors were entries then, and their members are now."""
        saved = metadata.state_dict_metadata.keys()
        if self.state_dict.keys() <= saved:
            return
        older, paths = flatten_state_dict(self.original_state_dict, traverse_state_dict_v_2_3)
        if (older.keys() - self.state_dict.keys()) & saved:
            _version._derived_version = "2_3"
            self.state_dict, self.mappings = older, paths

    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        return create_default_global_load_plan(global_plan)

    def finish_plan(self, new_plan: LoadPlan) -> LoadPlan:
        return new_plan

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        name = read_item.dest_index.fqn
        try:
            loaded = load(value)
        except Exception as problem:
            problem.add_note(f"(while loading {name!r}, which was saved as an object)")
            raise
        if self.flatten_state_dict:
            set_element(self.original_state_dict, self.mappings[name], loaded)
        else:
            self.state_dict[name] = loaded

    def resolve_tensor(self, read_item: ReadItem) -> Tensor:
        return self.transform_tensor(read_item, self.lookup_tensor(read_item.dest_index))

    def commit_tensor(self, read_item: ReadItem, tensor: Tensor) -> None:
        pass

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        """The memory that an index stands for; for planners that inherit from this one."""
        return find_state_dict_object(self.state_dict, index)

    def transform_tensor(self, read_item: ReadItem, tensor: Tensor) -> Tensor:
        """The stretch of it that an item fills; for planners that inherit from this one."""
        return narrow_tensor_by_index(tensor, read_item.dest_offsets, read_item.lengths)


class _EmptyStateDictLoadPlanner(DefaultLoadPlanner):
    """Makes the state from what the checkpoint has: all of it, or the entries named by `keys` (an entry, or what is inside of it)."""

    def __init__(self, keys: set[str] | None = None, *args: Any, **kwargs: Any) -> None:
        self.keys = keys
        super().__init__(*args, **kwargs)

    def _should_include_key(self, key: str, metadata: Metadata) -> bool:
        if self.keys is None or key in self.keys:
            return True
        path = (metadata.planner_data or {}).get(key, ())
        parents = (".".join(map(str, path[:depth])) for depth in range(1, len(path)))
        return any(parent in self.keys for parent in parents)

    def set_up_planner(self, state_dict: STATE_DICT_TYPE, metadata: Metadata | None = None, is_coordinator: bool = False) -> None:
        if state_dict:
            raise AssertionError(f"this planner makes the state itself: expected an empty one, found {', '.join(map(str, state_dict))}")
        if metadata is None:
            raise AssertionError("this planner makes the state from the metadata of the checkpoint, and there are none")
        for name, saved in metadata.state_dict_metadata.items():
            if not self._should_include_key(name, metadata):
                continue
            value: Any = saved
            if isinstance(saved, TensorStorageMetadata):
                value = empty(saved.size, dtype=saved.properties.dtype)
            path = (metadata.planner_data or {}).get(name)
            if path is None:
                state_dict[name] = value
            else:
                set_element(state_dict, path, value)
        super().set_up_planner(state_dict, metadata, is_coordinator)


# -- plans ---------------------------------------------------------------------------------------------------------


def create_default_local_load_plan(state_dict: dict[str, Any], metadata: Metadata, strict: bool = True) -> LoadPlan:
    """Read everything that the state has: RuntimeError for names that the checkpoint lacks (`strict`), ValueError for another shape."""
    saved = metadata.state_dict_metadata
    missing = [name for name in state_dict if name not in saved]
    if missing and strict:
        raise RuntimeError(_missing(missing, saved))
    items: list[ReadItem] = []
    for name, value in state_dict.items():
        if name not in saved:
            continue
        found = saved[name]
        if isinstance(found, TensorStorageMetadata) and isinstance(value, Tensor) and value.size() != found.size:
            raise ValueError(
                f"Size mismatch between saved {found.size} and current: {value.size()} for {name}. A checkpoint can be loaded with other placements, not with "
                "other shapes: was the model built with other sizes?"
            )
        items += _create_read_items(name, found, value)
    return LoadPlan(items)


def _missing(names: list[str], saved: dict[str, STORAGE_TYPES]) -> str:
    shown = "".join(f"\n    {name}   {_alike(name, saved)}" for name in names[:5])
    more = f"\n    and {len(names) - 5} more" if len(names) > 5 else ""
    return (
        f"Missing key in checkpoint state_dict: {names[0]}. The state that shall be filled has {len(names)} entries that the checkpoint lacks, which has "
        f"{len(saved)} names:{shown}{more}\n"
        "    try load(..., planner=DefaultLoadPlanner(allow_partial_load=True)), which leaves such entries as they are"
    )


def _alike(name: str, saved: Iterable[str]) -> str:
    ends = [other for other in saved if other.endswith(f".{name}") or name.endswith(f".{other}")]
    found = ends or get_close_matches(name, list(saved)[:5000], 1, 0.7)
    return f"(it has {found[0]})" if found else ""


def create_default_global_load_plan(all_plans: list[LoadPlan]) -> list[LoadPlan]:
    """Every rank reads what it wants."""
    return all_plans


def create_default_local_save_plan(state_dict: dict[str, Any], is_coordinator: bool) -> SavePlan:
    """Write everything that this rank has; what others have, too, is taken out of one of the plans later."""
    return SavePlan([item for name, value in state_dict.items() for item in _create_write_items(name, value)])


def create_default_global_save_plan(all_plans: list[SavePlan], rewrite_index_hints: bool = True) -> tuple[list[SavePlan], Metadata]:
    """(the plans, the metadata): every box gets its number among those of its tensor, as the hint where a reader finds it."""
    described: dict[str, STORAGE_TYPES] = {}
    plans = []
    for plan in all_plans:
        items = []
        for item in plan.items:
            name = item.index.fqn
            if item.type is WriteItemType.BYTE_IO:
                described[name] = BytesStorageMetadata()
                items.append(item)
                continue
            data = item.tensor_data
            if data is None:
                raise AssertionError(f"the item {item.index} of a plan is a tensor without a description (tensor_data)")
            tensor = described.setdefault(name, TensorStorageMetadata(data.properties, data.size, []))
            if not isinstance(tensor, TensorStorageMetadata):
                raise ValueError(f"{name} is a tensor on one rank and an object on another: every rank has to save the same")
            tensor.chunks.append(data.chunk)
            if rewrite_index_hints:
                item = replace(item, index=MetadataIndex(name, item.index.offset, len(tensor.chunks) - 1))
            items.append(item)
        plans.append(replace(plan, items=items))
    return plans, Metadata(described)
