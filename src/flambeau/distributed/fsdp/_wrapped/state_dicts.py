"""state_dict and load_state_dict of a wrapper, in three kinds. Names are those of the model without wrappers.

FULL_STATE_DICT      0.weight     whole tensors, on every rank or on the first alone
SHARDED_STATE_DICT   0.weight     DTensors, of which each rank has some rows; PyTorch's are ShardedTensors unless there is a device_mesh
LOCAL_STATE_DICT     0._flat_param   what each rank keeps, as a DTensor; it can be loaded where the parameters are divided in the same way
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from flambeau.distributed.fsdp._wrapped.ignored import own_modules
from flambeau.distributed.fsdp._wrapped.layout import clean
from flambeau.distributed.fsdp._wrapped.unit import FLAT_PARAM, Unit
from flambeau.distributed.fsdp._wrapped.whole_parameters import whole_parameters
from flambeau.distributed.fsdp.api import StateDictType
from flambeau.distributed.tensor import DTensor, Shard
from flambeau.modes import no_grad
from flambeau.tensor import Tensor

WRAPPED = "_fsdp_wrapped_module."


def save(wrapper: Any, collect: Callable[[], dict[str, Any]], prefix: str) -> dict[str, Any]:
    """The state that `collect` collects while the modules hold what is to be saved; what belongs to this wrapper is brought into its form."""
    kind, config = wrapper._state_dict_type, wrapper._state_dict_config
    unit: Unit | None = wrapper._handle
    if unit is None:
        return _renamed(collect(), prefix + WRAPPED, prefix)
    if kind is StateDictType.LOCAL_STATE_DICT:
        _refuse_whole(unit)
        with unit.holding_flat():
            state = _renamed(collect(), prefix + WRAPPED, prefix)
        state[prefix + FLAT_PARAM] = _on_cpu(_local(unit)) if config.offload_to_cpu else _local(unit)
        return state
    rank0_only = kind is StateDictType.FULL_STATE_DICT and getattr(config, "rank0_only", False)
    left_out = rank0_only and wrapper.rank != 0
    sharded = kind is StateDictType.SHARDED_STATE_DICT and unit.uses_sharded_strategy
    with no_grad(), whole_parameters(wrapper, rank0_only=rank0_only):
        state = _renamed(collect(), prefix + WRAPPED, prefix)
        for name in [prefix + name for place in unit.layout.places for name in place.names] + [prefix + FLAT_PARAM]:
            if left_out:
                state.pop(name, None)
            elif name in state:
                found = state[name].detach()
                found = unit.distributed(found) if sharded else found.clone()
                state[name] = _on_cpu(found) if config.offload_to_cpu else found
    for name, dtype in wrapper._buffer_dtypes.items():
        name = prefix + name
        if left_out:
            state.pop(name, None)
        elif name in state:
            if config.offload_to_cpu:
                state[name] = _on_cpu(state[name])
            if state[name].dtype != dtype:
                state[name] = state[name].to(dtype)
    return state


def buffer_dtypes(module: Any, ignored_modules: set[Any]) -> dict[str, Any]:
    """{name: dtype} of the buffers of a wrapper, without those of wrappers inside."""
    inside = set(own_modules(module, ignored_modules))
    return {
        clean(f"{prefix}.{name}" if prefix else name): buffer.dtype for prefix, owner, name, buffer in _buffers(module) if owner in inside
    }


def _buffers(module: Any) -> Iterator[tuple[str, Any, str, Tensor]]:
    for prefix, owner in module.named_modules():
        for name, buffer in owner._buffers.items():
            if buffer is not None:
                yield prefix, owner, name, buffer


def begin_load(wrapper: Any, state: dict[str, Any], prefix: str) -> AbstractContextManager[None] | None:
    """Let the modules hold what `state` has, and rename its entries to what it is called inside. What is returned, entered already, ends it."""
    unit: Unit | None = wrapper._handle
    _renamed(state, prefix, prefix + WRAPPED)
    if unit is None:
        return None
    prefix += WRAPPED
    held: AbstractContextManager[None]
    if wrapper._state_dict_type is StateDictType.LOCAL_STATE_DICT:
        _refuse_whole(unit)
        name = prefix + FLAT_PARAM
        if name not in state:
            raise AssertionError(
                f"No `FlatParameter` in `state_dict` for this FSDP instance but it has parameters: {name.replace(WRAPPED, '')} is missing. A state that was "
                "saved as another StateDictType is loaded as that"
            )
        state[name] = _padded(unit, state[name])
        held = unit.holding_flat()
    else:
        for name in [prefix + name for place in unit.layout.places for name in place.names]:
            inside = next((key for key in (name, _with_wrappers(state, name)) if key in state), None)
            if inside is not None and isinstance(state[inside], DTensor):
                state[inside] = state[inside].full_tensor()
        held = whole_parameters(wrapper, writeback=True)
    held.__enter__()
    return held


def _with_wrappers(state: dict[str, Any], name: str) -> str:
    """How a state calls what has this name without wrappers."""
    return next((key for key in state if clean(key) == clean(name)), name)


def _renamed(state: dict[str, Any], before: str, after: str) -> dict[str, Any]:
    """The same entries, with `after` for `before` at the beginning of their names. In their order, and in the same dictionary."""
    if before != after:
        for name in list(state):
            if name.startswith(before):
                state[after + name[len(before) :]] = state.pop(name)
    return state


def _on_cpu(tensor: Any) -> Any:
    if not isinstance(tensor, DTensor):
        return tensor.cpu()
    local = tensor.to_local()
    if local.is_cpu:
        return tensor
    return DTensor.from_local(
        local.cpu(), tensor.device_mesh, tensor.placements, run_check=False, shape=tensor.size(), stride=tensor.stride()
    )


# -- LOCAL_STATE_DICT ----------------------------------------------------------------------------------------------


def _refuse_whole(unit: Unit) -> None:
    if not unit.uses_sharded_strategy:
        raise RuntimeError(
            "``local_state_dict`` can only be used when parameters are flatten and sharded: try StateDictType.FULL_STATE_DICT"
        )


def _local(unit: Unit) -> DTensor:
    """The flat parameter without the padding at its end, of which this rank has its piece."""
    own = unit.flat_param.detach()[: unit.layout.own_elements]
    placements = unit.meshes.placements(Shard(0))
    return DTensor.from_local(own, unit.meshes.mesh, placements, run_check=False, shape=(unit.layout.elements,), stride=(1,))


def _padded(unit: Unit, saved: Any) -> Tensor:
    """This rank's piece of a saved flat parameter, with the padding."""
    local = saved.to_local() if isinstance(saved, DTensor) else saved
    if local.numel() == unit.layout.per_rank:
        return local
    if local.numel() != unit.layout.own_elements:
        raise ValueError(
            f"this rank keeps {unit.layout.own_elements} elements of a flat parameter, found {local.numel()} in the state: LOCAL_STATE_DICT is for the same "
            "division over the same number of ranks. SHARDED_STATE_DICT can be loaded anywhere"
        )
    padded = unit.flat_param.detach().clone()
    padded[: local.numel()].copy_(local)
    return padded
