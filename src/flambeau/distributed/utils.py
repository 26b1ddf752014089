"""torch.distributed.utils: what libraries import from there. The name of this file is PyTorch's."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Container, Sequence
from itertools import chain
from typing import Any

from flambeau.distributed.data_parallel import replicas
from flambeau.distributed.data_parallel.mixed_precision import cast
from flambeau.distributed.data_parallel.moving import mapped, moved
from flambeau.nn.modules.module import Module
from flambeau.tensor import Tensor

__all__: list[str] = []


def _verify_param_shape_across_processes(process_group: Any, tensors: Sequence[Tensor], logger: Any = None) -> None:
    """RuntimeError on all ranks, naming them, if the tensors are not as many or not of the same shapes everywhere."""
    replicas.check(process_group, tensors)


def _sync_module_states(
    module: Module,
    process_group: Any,
    broadcast_bucket_size: int,
    src: int,
    params_and_buffers_to_ignore: Container[str],
    broadcast_buffers: bool = True,
) -> None:
    """Give all ranks the parameters, and buffers, of rank `src`."""
    named = chain(module.named_parameters(), module.named_buffers() if broadcast_buffers else ())
    states = [tensor.detach() for name, tensor in named if name not in params_and_buffers_to_ignore]
    _sync_params_and_buffers(process_group, states, broadcast_bucket_size, src)


def _sync_params_and_buffers(process_group: Any, module_states: Sequence[Tensor], broadcast_bucket_size: int, src: int) -> None:
    """Give all ranks the tensors of rank `src`."""
    replicas.broadcast(process_group, module_states, src, broadcast_bucket_size)


def _to_kwargs(
    inputs: tuple[Any, ...], kwargs: dict[str, Any] | None, target_device: Any, use_side_stream_for_tensor_copies: bool
) -> tuple[tuple[Any, ...], tuple[dict[str, Any], ...]]:
    """(inputs, keyword arguments) on a device, each in a tuple of one: for one device of several."""
    return (moved(tuple(inputs), target_device),), (moved(kwargs or {}, target_device),)


def _recursive_to(inputs: Any, target_device: Any, use_side_stream_for_tensor_copies: bool) -> list[Any]:
    """Tensors in any structure, on a device: a list of one structure."""
    return [moved(inputs, target_device)]


def _cast_forward_inputs(dtype: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """Arguments with their floating-point tensors in another dtype; None leaves them as they are."""
    return (args, kwargs) if dtype is None else cast((args, kwargs), dtype)


def _apply_to_tensors(fn: Callable[[Tensor], Any], container: Any) -> Any:
    """The same structure with every tensor changed."""
    return mapped(fn, container)


def _pack_kwargs(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """All arguments in one tuple, and the names of the last of them.

    >>> _pack_kwargs(1, b=2)
    ((1, 2), ('b',))
    """
    return (*args, *kwargs.values()), tuple(kwargs)


def _unpack_kwargs(flat_args: tuple[Any, ...], kwarg_keys: tuple[str, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Back: (arguments, keyword arguments)."""
    if len(kwarg_keys) > len(flat_args):
        raise AssertionError(f"too many keys {len(kwarg_keys)} vs. {len(flat_args)} arguments")
    cut = len(flat_args) - len(kwarg_keys)
    return flat_args[:cut], dict(zip(kwarg_keys, flat_args[cut:], strict=True))


def _p_assert(cond: Any, s: str, raise_assertion_error: bool = True) -> None:
    """An assertion that is seen even where exceptions get lost: in hooks."""
    if not cond:
        print(s)
        traceback.print_stack()
        if raise_assertion_error:
            raise AssertionError(s)


def _alloc_storage(tensor: Tensor, size: Sequence[int]) -> None:
    """Give a tensor whose memory was freed room for `size` again."""
    storage = tensor.untyped_storage()
    wanted = tensor.element_size()
    for n in size:
        wanted *= n
    if storage.size() != wanted:
        storage.resize_(wanted)


def _free_storage(tensor: Tensor) -> None:
    """Free the memory of a tensor that has all of its storage."""
    storage = tensor.untyped_storage()
    if storage.size():
        if tensor.storage_offset():
            raise AssertionError(f"a tensor with an offset of {tensor.storage_offset()} shares its memory with others: it is not freed")
        storage.resize_(0)


def _data_ptr_allocated(tensor: Tensor) -> bool:
    return tensor.untyped_storage().size() > 0


def _replace_by_prefix(state_dict: dict[str, Any], old_prefix: str, new_prefix: str) -> None:
    """Let names that begin with one prefix begin with another, in place."""
    if old_prefix == new_prefix:
        raise ValueError("old_prefix and new_prefix must be distinct")
    for key in [key for key in state_dict if key.startswith(old_prefix)]:
        state_dict[new_prefix + key[len(old_prefix) :]] = state_dict.pop(key)


def _get_root_modules(modules: list[Module]) -> list[Module]:
    """Those that are inside of no other."""
    inside = {id(child) for module in modules for child in module.modules() if child is not module}
    return [module for module in modules if id(module) not in inside]
