"""Items of plans for tensors, DTensors and objects."""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import prod
from typing import Any

from flambeau import devices
from flambeau.distributed import distributed_c10d
from flambeau.distributed.checkpoint.metadata import (
    STORAGE_TYPES,
    BytesStorageMetadata,
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from flambeau.distributed.checkpoint.planner import LoadItemType, ReadItem, SavePlan, TensorWriteData, WriteItem, WriteItemType
from flambeau.distributed.checkpoint.resharding import (
    _check_shard_metadata_pair_overlap,
    _shards_get_overlap_region_wrt_saved_tensor,
    is_dtensor,
    local_boxes,
    local_tensor,
)
from flambeau.tensor import Size, Tensor
from flambeau.tensor.making.factories import empty_like

__all__ = ["create_read_items_for_chunk_list"]


# -- writing -------------------------------------------------------------------------------------------------------


def _create_write_items(fqn: str, object: Any) -> list[WriteItem]:
    """What this rank would write of a value. A tensor class of another library decides for itself by a method `__create_write_items__`."""
    if hasattr(object, "__create_write_items__") and not is_dtensor(object):
        return object.__create_write_items__(fqn, object)
    if is_dtensor(object):
        return _create_write_items_for_dtensor(fqn, object)
    if is_sharded_tensor(object):
        return [_create_write_item_for_shard(fqn, object, shard.metadata) for shard in object.local_shards()]
    if isinstance(object, Tensor):
        return [_create_write_item_for_tensor(fqn, object)]
    return [_create_write_item_for_bytesio(fqn, object)]


def _create_write_items_for_dtensor(fqn: str, tensor: Any) -> list[WriteItem]:
    properties = TensorProperties.create_from_tensor(local_tensor(tensor))
    properties.requires_grad = tensor.requires_grad
    return [
        WriteItem(MetadataIndex(fqn, box.offsets), WriteItemType.SHARD, tensor_data=TensorWriteData(box, properties, tensor.size()))
        for box in local_boxes(tensor)
    ]


def _create_write_item_for_tensor(fqn: str, tensor: Tensor) -> WriteItem:
    box = _create_chunk_from_tensor(tensor)
    data = TensorWriteData(box, TensorProperties.create_from_tensor(tensor), tensor.size())
    return WriteItem(MetadataIndex(fqn, box.offsets), WriteItemType.TENSOR, tensor_data=data)


def _create_write_item_for_bytesio(fqn: str, bytes: Any) -> WriteItem:
    return WriteItem(MetadataIndex(fqn), WriteItemType.BYTE_IO)


def _create_chunk_from_tensor(tensor: Tensor) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(Size([0] * tensor.dim()), tensor.size())


def _create_chunk_list(tensor: Any) -> list[ChunkStorageMetadata]:
    """The boxes of a tensor that lie on this rank."""
    if hasattr(tensor, "__create_chunk_list__") and not is_dtensor(tensor):
        return tensor.__create_chunk_list__()
    if is_sharded_tensor(tensor):
        return [_chunk_for_shard(shard.metadata) for shard in tensor.local_shards()]
    if not isinstance(tensor, Tensor):
        raise ValueError(f"Unsupported Type, expecting one of [Tensor, DTensor, ShardedTensor], but got {type(tensor)}")
    return local_boxes(tensor)


# -- reading -------------------------------------------------------------------------------------------------------


def _create_read_items(fqn: str, md: STORAGE_TYPES, obj: Any) -> list[ReadItem]:
    """What has to be read to fill a value: the stretches of saved boxes that meet the boxes here, or the bytes of an object."""
    if isinstance(md, BytesStorageMetadata):
        return [_create_read_item_for_byteio(MetadataIndex(fqn), 0, MetadataIndex(fqn), 0, 0)]
    try:
        boxes = _create_chunk_list(obj)
    except ValueError as problem:
        if isinstance(obj, Tensor):
            raise
        raise ValueError(
            f"Invalid checkpoint metadata for {fqn}, expected BytesStorageMetadata but found {type(md)}: a tensor of shape {tuple(md.size)} was saved, and "
            f"a {type(obj).__name__} stands there now. Put a tensor there, torch.empty({tuple(md.size)}) for example"
        ) from problem
    return create_read_items_for_chunk_list(fqn, md, boxes)


def create_read_items_for_chunk_list(
    fqn: str, checkpoint_md: TensorStorageMetadata, local_chunks: list[ChunkStorageMetadata]
) -> list[ReadItem]:
    """The stretches to read, so that the local boxes are filled from the saved ones. ValueError if the checkpoint has not all of it."""
    items = []
    for here, box in enumerate(local_chunks):
        missing = prod(box.sizes)
        for there, saved in enumerate(checkpoint_md.chunks):
            if not _check_shard_metadata_pair_overlap(box, saved):
                continue
            meeting = _shards_get_overlap_region_wrt_saved_tensor(saved_shard=saved, current_shard=box)
            _, in_saved, in_box, lengths = zip(*meeting, strict=True) if meeting else ((), (), (), ())
            missing -= prod(lengths)
            items.append(
                _create_read_item_for_tensor(
                    MetadataIndex(fqn, box.offsets, here), in_box, MetadataIndex(fqn, saved.offsets, there), in_saved, lengths
                )
            )
        if missing > 0:
            raise ValueError(
                f"{fqn}: the checkpoint lacks {missing} of the {prod(box.sizes)} elements of the box at {tuple(box.offsets)}, sizes {tuple(box.sizes)}; it has "
                + ", ".join(f"{tuple(saved.offsets)}: {tuple(saved.sizes)}" for saved in checkpoint_md.chunks)
            )
    return items


def _create_read_item_for_byteio(
    dest_index: MetadataIndex, dest_offset: int, storage_index: MetadataIndex, storage_offset: int, length: int
) -> ReadItem:
    return ReadItem(LoadItemType.BYTE_IO, dest_index, Size([dest_offset]), storage_index, Size([storage_offset]), Size([length]))


def _create_read_item_for_tensor(
    dest_index: MetadataIndex, dest_offsets: Any, storage_index: MetadataIndex, storage_offsets: Any, lengths: Any
) -> ReadItem:
    return ReadItem(LoadItemType.TENSOR, dest_index, Size(dest_offsets), storage_index, Size(storage_offsets), Size(lengths))


# -- tensors without memory ----------------------------------------------------------------------------------------


def _init_state_dict(state_dict: dict[str, Any]) -> Any:
    """Give every meta tensor in a state memory on the device of this rank, in place, so that it can be filled."""
    return _iterate_state_dict(state_dict, _init_meta_dtensor, lambda value: value, _init_meta_tensor)


def _init_meta_tensor(value: Any) -> Any:
    if not (isinstance(value, Tensor) and value.device.type == "meta"):
        return value
    backend = distributed_c10d._get_pg_default_device().type if distributed_c10d.is_initialized() else "cpu"
    return empty_like(value, device=devices.device(backend))


def _init_meta_dtensor(value: Any) -> Any:
    if local_tensor(value).device.type != "meta":
        return value
    return type(value).from_local(
        empty_like(local_tensor(value), device=devices.device(value.device_mesh.device_type)),
        device_mesh=value.device_mesh,
        placements=value.placements,
        shape=value.size(),
        stride=value.stride(),
    )


def _iterate_state_dict(iter_object: Any, dtensor_func: Callable, sharded_tensor_func: Callable, tensor_func: Callable) -> Any:
    """Replace the tensors in nested containers by what the function for their kind gives. Dictionaries and lists are changed in place."""
    if is_dtensor(iter_object):
        return dtensor_func(iter_object)
    if is_sharded_tensor(iter_object):
        return sharded_tensor_func(iter_object)
    if isinstance(iter_object, Tensor):
        return tensor_func(iter_object)

    def replaced(value: Any) -> Any:
        return _iterate_state_dict(value, dtensor_func, sharded_tensor_func, tensor_func)

    if isinstance(iter_object, dict):
        for key, value in iter_object.items():
            iter_object[key] = replaced(value)
    elif isinstance(iter_object, list):
        iter_object[:] = [replaced(value) for value in iter_object]
    elif type(iter_object) is tuple:
        return tuple(replaced(value) for value in iter_object)
    return iter_object


# -- plans that are as they were -----------------------------------------------------------------------------------


def _compare_save_plans(plan: SavePlan, other_plan: SavePlan) -> bool:
    """Whether two plans of one rank write the same things."""
    return plan.usable == other_plan.usable and plan.items == other_plan.items


def _contains_usable_plan(delta_plans: list[SavePlan]) -> bool:
    """Whether any rank has something new to say."""
    return any(plan.usable for plan in delta_plans)


def _merge_delta_local_plans(cached_plans: list[SavePlan], delta_plans: list[SavePlan]) -> list[SavePlan]:
    """The plan of every rank: the new one where there is one, the cached one otherwise."""
    return [new if new.usable else old for old, new in zip(cached_plans, delta_plans, strict=True)]


# -- ShardedTensor -------------------------------------------------------------------------------------------------


def is_sharded_tensor(value: Any) -> bool:
    """Whether this is a ShardedTensor. There can be none before its module is imported."""
    module = sys.modules.get("flambeau.distributed._shard.sharded_tensor.api")
    return module is not None and isinstance(value, module.ShardedTensor)


def _chunk_for_shard(shard_md: Any) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(Size(shard_md.shard_offsets), Size(shard_md.shard_sizes))


def _sharded_tensor_metadata(sharded_tensor: Any, shard_md: Any) -> TensorWriteData:
    found = sharded_tensor.metadata().tensor_properties
    properties = TensorProperties(found.dtype, found.layout, found.requires_grad, found.memory_format, found.pin_memory)
    return TensorWriteData(_chunk_for_shard(shard_md), properties, sharded_tensor.metadata().size)


def _create_write_item_for_shard(fqn: str, sharded_tensor: Any, shard_md: Any) -> WriteItem:
    data = _sharded_tensor_metadata(sharded_tensor, shard_md)
    return WriteItem(MetadataIndex(fqn, data.chunk.offsets), WriteItemType.SHARD, tensor_data=data)
