"""States with whole tensors: gathered from all ranks, or cut into what each rank has.

full_state_dict       gather: every rank's part of a DTensor -> the whole tensor           cut: the whole tensor -> this rank's part
broadcast_from_rank0                                                                       only rank 0 has it: sent tensor by tensor, then cut
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau import devices
from flambeau import distributed as dist
from flambeau.distributed.checkpoint.resharding import _boxes_of_dtensor, _cut, is_dtensor, local_tensor
from flambeau.modes import no_grad
from flambeau.tensor import Size, Tensor
from flambeau.tensor.making.factories import empty, empty_like


def mapped(value: Any, function: Callable[[Tensor], Any]) -> Any:
    """Nested dictionaries, lists and tuples with every tensor replaced."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, dict):
        return {key: mapped(inside, function) for key, inside in value.items()}
    if type(value) in (list, tuple):
        return type(value)(mapped(inside, function) for inside in value)
    return value


def gathered(state: dict[str, Any], *, cpu_offload: bool, rank0_only: bool) -> dict[str, Any]:
    """The state with whole tensors, on every rank or on rank 0 alone: the others take part, and are given an empty one."""
    alone = rank0_only and dist.is_initialized() and dist.get_rank() != 0

    def whole(tensor: Tensor) -> Tensor | None:
        found = tensor.full_tensor() if is_dtensor(tensor) else tensor
        if alone:
            return None
        return _on_cpu(found) if cpu_offload else found

    with no_grad():
        found = mapped(state, whole)
    return {} if alone else found


def offloaded(state: dict[str, Any]) -> dict[str, Any]:
    """The state in main memory; DTensors keep their placements."""

    def move(tensor: Any) -> Tensor:
        if not is_dtensor(tensor) or local_tensor(tensor).device.type == "cpu":
            return tensor if is_dtensor(tensor) else _on_cpu(tensor)
        local = _on_cpu(local_tensor(tensor))
        return type(tensor).from_local(
            local, tensor.device_mesh, tensor.placements, run_check=False, shape=tensor.size(), stride=tensor.stride()
        )

    return mapped(state, move)


def _on_cpu(tensor: Tensor) -> Tensor:
    return tensor if tensor.device.type == "cpu" else tensor.to(devices.cpu)


# -- whole tensors to parts ----------------------------------------------------------------------------------------


def part_of(whole: Tensor, like: Any) -> Any:
    """What this rank has of a whole tensor, laid out as `like` is: a DTensor of its placements, or the tensor itself on its device."""
    if not is_dtensor(like):
        return whole if like.device.type == "meta" else whole.to(like.device)
    if is_dtensor(whole):
        return whole
    if whole.size() != like.size():
        raise ValueError(f"a whole tensor of shape {tuple(whole.shape)} cannot become a DTensor of shape {tuple(like.shape)}")
    device = local_tensor(like).device
    local = empty_like(
        local_tensor(like), dtype=whole.dtype, device=devices.device(like.device_mesh.device_type) if device.type == "meta" else device
    )
    for box, start in _boxes_of_dtensor(like):
        _cut(local, start, box.sizes).copy_(_cut(whole, tuple(box.offsets), box.sizes))
    return type(like).from_local(local, like.device_mesh, like.placements, run_check=False, shape=like.size(), stride=like.stride())


def distributed_like(state: Any, like: Any) -> Any:
    """A nested state of whole tensors as one of parts, laid out as the entries of the same path in `like`."""
    with no_grad():
        return _distributed(state, like)


def _distributed(state: Any, like: Any) -> Any:
    if isinstance(state, Tensor):
        return part_of(state, like) if isinstance(like, Tensor) else state
    if isinstance(state, dict):
        known = like if isinstance(like, dict) else {}
        return {key: _distributed(value, known.get(key)) for key, value in state.items()}
    return state


def broadcast_like(state: Any, like: Any, device: devices.device, group: Any = None) -> Any:
    """Rank 0's nested state of whole tensors on every rank, laid out as the entries of the same path in `like`. No rank but 0 has more than one whole tensor
    at a time."""
    outline = [mapped(state, _Outline.of) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(outline, src=0, group=group)
    with no_grad():
        return _received(outline[0], state if dist.get_rank() == 0 else None, like, device, group)


class _Outline:
    """A tensor without its elements."""

    def __init__(self, shape: Size, dtype: Any):
        self.shape, self.dtype = shape, dtype

    @staticmethod
    def of(tensor: Tensor) -> _Outline:
        return _Outline(tensor.size(), tensor.dtype)


def _received(outline: Any, state: Any, like: Any, device: devices.device, group: Any) -> Any:
    if isinstance(outline, _Outline):
        whole = state.detach().to(device).contiguous() if state is not None else empty(outline.shape, dtype=outline.dtype, device=device)
        dist.broadcast(whole, src=0, group=group)
        return part_of(whole, like) if isinstance(like, Tensor) else whole
    if isinstance(outline, dict):
        known = like if isinstance(like, dict) else {}
        return {
            key: _received(inside, None if state is None else state[key], known.get(key), device, group) for key, inside in outline.items()
        }
    if type(outline) in (list, tuple):
        return type(outline)(
            _received(inside, None if state is None else state[number], None, device, group) for number, inside in enumerate(outline)
        )
    return outline
