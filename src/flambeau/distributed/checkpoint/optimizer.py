"""load_sharded_optimizer_state_dict: an optimizer's state from a checkpoint, cut as the model is."""

from __future__ import annotations

from typing import Any

from flambeau.distributed.checkpoint._nested_dict import unflatten_state_dict
from flambeau.distributed.checkpoint.metadata import STATE_DICT_TYPE, BytesStorageMetadata, TensorStorageMetadata
from flambeau.distributed.checkpoint.planner import LoadPlanner
from flambeau.distributed.checkpoint.resharding import is_dtensor
from flambeau.distributed.checkpoint.state_dict_loader import _load_state_dict
from flambeau.distributed.checkpoint.storage import StorageReader
from flambeau.tensor.making import factories

__all__ = ["load_sharded_optimizer_state_dict"]


def load_sharded_optimizer_state_dict(
    model_state_dict: STATE_DICT_TYPE, optimizer_key: str, storage_reader: StorageReader, planner: LoadPlanner | None = None
) -> STATE_DICT_TYPE:
    """{optimizer_key: state} of a checkpoint that was saved with the optimizer's state by names of parameters (FSDP.optim_state_dict).

    A tensor of the state is a DTensor placed as the parameter of its name is in `model_state_dict`; those of other parameters are cut along dimension 0 over
    all ranks, and those of one element are whole on each.

        state = load_sharded_optimizer_state_dict(model.state_dict(), "optimizer", FileSystemReader("checkpoint"))
        optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, state["optimizer"]))
    """
    metadata = storage_reader.read_metadata()
    paths = {key: path for key, path in (metadata.planner_data or {}).items() if path[0] == optimizer_key}
    if not paths:
        there = sorted({str(path[0]) for path in (metadata.planner_data or {}).values()})
        raise KeyError(f"the checkpoint has no {optimizer_key!r}: it has {', '.join(there) or 'nothing'}")
    wanted = {key: _place(metadata.state_dict_metadata[key], paths[key], model_state_dict) for key in paths}
    _load_state_dict(wanted, storage_reader, planner=planner)
    return unflatten_state_dict(wanted, paths)


def _place(found: TensorStorageMetadata | BytesStorageMetadata, path: tuple[Any, ...], model: STATE_DICT_TYPE) -> Any:
    """What an entry of the checkpoint is read into."""
    if isinstance(found, BytesStorageMetadata):
        return "<bytes_io>"
    dtype = found.properties.dtype
    if found.size.numel() == 1:
        return factories.empty(found.size, dtype=dtype)
    from flambeau.distributed import tensor
    from flambeau.distributed.collectives.ranks import get_world_size

    parameter = model.get(path[2]) if len(path) > 2 else None  # (optimizer, "state", name, "exp_avg")
    if is_dtensor(parameter) and parameter.shape == found.size:
        mesh, placements = parameter.device_mesh, parameter.placements
    else:
        mesh, placements = tensor.init_device_mesh(_device_type(model), (get_world_size(),)), (tensor.Shard(0),)
    return tensor.empty(*found.size, dtype=dtype, device_mesh=mesh, placements=placements)


def _device_type(model: STATE_DICT_TYPE) -> str:
    """Where the model is."""
    from flambeau.tensor import Tensor

    return next((value.device.type for value in model.values() if isinstance(value, Tensor)), "cpu")
