"""FSDPModule: what a module can do once fully_shard has divided its parameters."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from flambeau.distributed import get_process_group_ranks, new_group
from flambeau.distributed.fsdp._fully_shard.communication import Communication
from flambeau.distributed.fsdp._fully_shard.meshes import after_forward
from flambeau.distributed.fsdp._fully_shard.param_group import ParamGroup
from flambeau.distributed.fsdp._fully_shard.policies import AllGather, ReduceScatter
from flambeau.distributed.fsdp._fully_shard.state import State, state_of
from flambeau.nn.modules.module import Module

_new_init = True  # whether FSDPLinear(...) makes an initialized Linear


class FSDPModule:
    """Comes before the module's own class, in a class of both. Not to be made directly: `fully_shard(module)` gives a module its methods."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """A module of the original class: a slice of an FSDPSequential is a Sequential."""
        original = cls.__mro__[2]
        made = original.__new__(original, *args, **kwargs)
        if _new_init:
            made.__init__(*args, **kwargs)
        return made

    # -- whole and back

    def unshard(self, async_op: bool = False) -> UnshardHandle | None:
        """Make the parameters of this module (not of those inside that were given to fully_shard) whole. With `async_op`, begin to."""
        groups = self._get_fsdp_state().groups
        for group in groups:
            group.unshard(async_op=async_op)
        handle = _Gathering(groups)
        if async_op:
            return handle
        handle.wait()
        return None

    def reshard(self) -> None:
        """Free the whole parameters of this module; it has DTensors again."""
        for group in self._get_fsdp_state().groups:
            group.reshard()

    def reset_iter_state(self) -> None:
        """After an error in forward or backward: forget that pass, its gradients too. To be called on the root."""
        self._get_fsdp_state().reset()

    # -- when gradients are reduced

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Whether the next backward waits for reductions at its end."""
        self._get_fsdp_state().iteration.is_last_backward = is_last_backward

    def set_requires_gradient_sync(self, requires_gradient_sync: bool, *, recurse: bool = True) -> None:
        """Whether backward reduces gradients; if not they add up on each rank, whole."""
        for group in self._groups(recurse):
            group.reduce_grads = group.all_reduce_grads = requires_gradient_sync

    def set_requires_all_reduce(self, requires_all_reduce: bool, *, recurse: bool = True) -> None:
        """Whether backward adds gradients up over replicas, too; if not, each rank keeps its part of the sums of its shard group."""
        for group in self._groups(recurse):
            group.all_reduce_grads = requires_all_reduce

    def set_gradient_divide_factor(self, factor: float) -> None:
        """What sums of gradients are divided by, instead of the number of ranks."""
        for group in self._get_fsdp_state().groups:
            group.gradient_divide_factor = factor

    def set_reduce_scatter_divide_factor(self, factor: float) -> None:
        """The old name of set_gradient_divide_factor."""
        warnings.warn("Use `set_gradient_divide_factor` instead", FutureWarning, stacklevel=2)
        self.set_gradient_divide_factor(factor)

    def set_reduce_scatter_unused_params(self, reduce_scatter_unused_params: bool, *, recurse: bool = True) -> None:
        """Whether parameters without a gradient are reduced as zeros: for models of which ranks use different parts."""
        for group in self._groups(recurse):
            group.unused_as_zeros = reduce_scatter_unused_params

    def set_reduce_scatter_max_input_buffers(self, max_input_buffers: int, *, recurse: bool = True) -> None:
        """How many groups' whole gradients may be on their way at a time."""
        if isinstance(max_input_buffers, bool) or not isinstance(max_input_buffers, int):
            raise TypeError(f"max_input_buffers must be an int, got {type(max_input_buffers).__name__}")
        if max_input_buffers < 1:
            raise ValueError(f"max_input_buffers must be a positive int, got {max_input_buffers}")
        for group in self._groups(recurse):
            group.most_reductions = group.communication.most = max_input_buffers

    def set_separate_reduce_scatter_group(self, enable: bool = True, *, recurse: bool = True) -> None:
        """Whether reduce-scatters have a process group of their own, and so run beside all-gathers. All ranks call it."""
        made: dict[tuple[int, ...], Any] = {}
        for group in self._groups(recurse):
            meshes = group.meshes
            if not enable or meshes.shard_group is None:
                meshes.reduce_group = meshes.shard_group
            elif meshes.reduce_group is meshes.shard_group:
                ranks = tuple(get_process_group_ranks(meshes.shard_group))
                if ranks not in made:
                    made[ranks] = new_group(list(ranks), use_local_synchronization=True, group_desc="fsdp_reduce_scatter")
                meshes.reduce_group = made[ranks]

    # -- when parameters are whole

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Whether whole parameters are freed between forward and backward."""
        if not isinstance(reshard_after_forward, bool):
            raise ValueError(f"reshard_after_forward should be a bool, got {type(reshard_after_forward)}")
        for state in self._states(recurse):
            state.auto_reshard = False
            for group in state.groups:
                group.reshard_to = after_forward(reshard_after_forward, group.meshes)

    def set_reshard_after_backward(self, reshard_after_backward: bool, *, recurse: bool = True) -> None:
        """Whether whole parameters are freed after backward; if not, the next forward need not gather them. For passes without a step between them."""
        for group in self._groups(recurse):
            group.reshard_after_backward = reshard_after_backward

    def set_unshard_in_backward(self, unshard_in_backward: bool) -> None:
        """Whether backward needs the parameters of this module; that of an embedding does not."""
        for group in self._get_fsdp_state().groups:
            group.unshard_in_backward = unshard_in_backward

    def set_modules_to_forward_prefetch(self, modules: Sequence[FSDPModule]) -> None:
        """Whose parameters are begun to be gathered when those of this module are whole, in forward."""
        self._get_fsdp_state().to_prefetch_in_forward = _states_of(modules)

    def set_modules_to_backward_prefetch(self, modules: Sequence[FSDPModule]) -> None:
        """The same in backward, where otherwise those of the module that ran before this one in forward are."""
        self._get_fsdp_state().to_prefetch_in_backward = _states_of(modules)

    def _set_unshard_async_op(self, async_op: bool) -> None:
        for group in self._groups(recurse=True):
            group.unshard_async_op = async_op

    # -- how bytes travel

    def set_custom_all_gather(self, comm: AllGather) -> None:
        """Let `comm` gather parameters."""
        self._only_group("set_custom_all_gather").all_gather = comm

    def set_custom_reduce_scatter(self, comm: ReduceScatter) -> None:
        """Let `comm` reduce gradients."""
        self._only_group("set_custom_reduce_scatter").reduce_scatter = comm

    def set_all_reduce_hook(self, hook: Callable[[Any], None], *, stream: Any = None) -> None:
        """Call hook(averages) with this rank's part of the reduced gradients, one flat tensor, before it becomes `.grad`; it may change it in place."""
        group = self._only_group("set_all_reduce_hook")
        if stream is not None:
            if group.meshes.replicate_group is not None:
                raise ValueError("stream cannot be set when using native HSDP")
            raise NotImplementedError("set_all_reduce_hook(stream=...): the hook runs on the current stream. Leave `stream` out")
        group.all_reduce_hook = hook

    def set_force_sum_reduction_for_comms(self, enable: bool) -> None:
        """Whether collectives are sums, with divisions by themselves. They always are here; a hook of set_all_reduce_hook comes before the division then."""
        for group in self._get_fsdp_state().groups:
            group.hook_sees_sums = enable

    def set_post_optim_event(self, event: Any) -> None:
        """What parameters are to wait for before they are gathered: an event after the optimizer's step. They wait for the current stream anyway."""
        event.wait()

    def set_allocate_memory_from_process_group_for_comm(self, enable: bool) -> None:
        """Whether buffers come from the process group's allocator, which no group here has."""
        if enable:
            raise NotImplementedError(
                "set_allocate_memory_from_process_group_for_comm(True): process groups here have no allocator of their own. "
                "set_custom_all_gather and set_custom_reduce_scatter can bring memory"
            )

    def set_symm_mem_for_comm(self, backend: str = "NCCL") -> None:
        """Buffers in memory that GPUs share."""
        raise NotImplementedError("set_symm_mem_for_comm: there is no symmetric memory here. Collectives go through the process group")

    # -- for this room

    def _get_fsdp_state(self) -> State:
        found = state_of(self)  # type: ignore[arg-type]
        if found is None:
            raise AssertionError(f"No FSDP state found on {self}: fully_shard gives a module one")
        return found

    def _states(self, recurse: bool) -> Iterator[State]:
        for module in list(self.modules()) if recurse else [self]:  # type: ignore[attr-defined]
            if isinstance(module, FSDPModule):
                yield module._get_fsdp_state()

    def _groups(self, recurse: bool) -> Iterator[ParamGroup]:
        for state in self._states(recurse):
            yield from state.groups

    def _only_group(self, method: str) -> Any:
        groups = self._get_fsdp_state().groups
        if len(groups) > 1:
            raise ValueError(
                f"{method} is not supported with multiple param groups: shard_placement_fn has put parameters of this module on several meshes"
            )
        return groups[0] if groups else _Nothing()

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        for state in self._states(recurse=True):
            for group in state.groups:
                group.be_sharded()
        result = super()._apply(*args, **kwargs)  # type: ignore[misc]
        for group in self._get_fsdp_state().groups:
            group.adopt()
            group.checked = False
        return result


class _Nothing:
    """Takes the settings of a module without parameters."""

    meshes = None


class UnshardHandle:
    """Parameters that are becoming whole."""

    def wait(self) -> None:
        """Until they are."""


class _Gathering(UnshardHandle):
    def __init__(self, groups: Sequence[ParamGroup]):
        self.groups = list(groups)

    def wait(self) -> None:
        for group in self.groups:
            group.wait()
        self.groups = []


def register_fsdp_forward_method(module: Module, method_name: str) -> None:
    """Let another method of the module count as its forward: parameters are whole while it runs. Nothing happens for modules without FSDP."""
    if not isinstance(module, FSDPModule):
        return
    if not hasattr(module, method_name):
        raise ValueError(f"{type(module)} does not have a method {method_name}")
    original = getattr(module, method_name)

    @functools.wraps(original)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        state = self._get_fsdp_state()
        args, kwargs = state.before_forward(self, args, kwargs)
        return state.after_forward(self, args, original(*args, **kwargs))

    setattr(module, method_name, wrapped.__get__(module, type(module)))


def share_comm_ctx(modules: Sequence[FSDPModule]) -> None:
    """Let several roots, the parts of a pipeline, share what their communication shares: one order, one queue of reductions."""
    for module in modules:
        if not isinstance(module, FSDPModule):
            raise ValueError(f"Expects list of FSDPModules but got {module}")
    states = [module._get_fsdp_state() for module in modules]
    shared: Communication | None = states[0].communication if states else None
    for state in states:
        assert shared is not None
        state._communicate(shared)


@contextmanager
def disable_fsdp_module_new_init() -> Iterator[None]:
    """Within it FSDPLinear(...) makes a Linear that has not been initialized."""
    global _new_init
    before, _new_init = _new_init, False
    try:
        yield
    finally:
        _new_init = before


def _states_of(modules: Sequence[Any]) -> list[State]:
    for module in modules:
        if not isinstance(module, FSDPModule):
            raise ValueError(f"Expects FSDPModule but got {type(module)}: {module}")
    return [module._get_fsdp_state() for module in modules]
