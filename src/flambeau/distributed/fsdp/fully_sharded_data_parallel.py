"""FullyShardedDataParallel: a module whose parameters are divided among ranks, and whole only while they are needed.

    model = FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({Block}))     # a wrapper around each Block, and one around all
    optimizer = Adam(model.parameters())                                                   # after wrapping: it sees this rank's pieces

Each wrapper lays its parameters end to end and divides them evenly. It is the older of two doors to one machine: see README.md.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from enum import Enum, auto
from itertools import pairwise
from typing import Any

from flambeau import modes
from flambeau.distributed.device_mesh import DeviceMesh
from flambeau.distributed.fsdp._fully_shard.param_group import Stage
from flambeau.distributed.fsdp._fully_shard.policies import CPUOffloadPolicy
from flambeau.distributed.fsdp._fully_shard.state import NAME, State
from flambeau.distributed.fsdp._wrapped import clipping, materialize, optim_state, precision, ranks, state_dicts, wrapping
from flambeau.distributed.fsdp._wrapped.flat_parameter import FlatParameter
from flambeau.distributed.fsdp._wrapped.ignored import ignored, managed
from flambeau.distributed.fsdp._wrapped.unit import Unit
from flambeau.distributed.fsdp._wrapped.whole_parameters import check as check_summon
from flambeau.distributed.fsdp._wrapped.whole_parameters import whole_parameters
from flambeau.distributed.fsdp.api import (
    BackwardPrefetch,
    CPUOffload,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    LocalOptimStateDictConfig,
    LocalStateDictConfig,
    MixedPrecision,
    OptimStateDictConfig,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    ShardingStrategy,
    StateDictConfig,
    StateDictSettings,
    StateDictType,
)
from flambeau.distributed.fsdp.wrap import CustomPolicy, ModuleWrapPolicy
from flambeau.distributed.groups.process_group import ProcessGroup
from flambeau.distributed.utils import _cast_forward_inputs
from flambeau.modes import no_grad
from flambeau.nn.modules.container import ModuleDict, ModuleList
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter
from flambeau.nn.utils import clip_grad_norm_
from flambeau.optim import Optimizer
from flambeau.tensor import Tensor

__all__ = ["FullyShardedDataParallel", "OptimStateKeyType"]

PREFIX = "_fsdp_wrapped_module."


class OptimStateKeyType(Enum):
    """What a state of an optimizer calls parameters."""

    PARAM_NAME = auto()
    PARAM_ID = auto()


class TrainingState(Enum):
    """What a wrapper is doing."""

    IDLE = auto()
    FORWARD_BACKWARD = auto()
    SUMMON_FULL_PARAMS = auto()


CONFIGS: dict[StateDictType, tuple[type[StateDictConfig], type[OptimStateDictConfig]]] = {
    StateDictType.FULL_STATE_DICT: (FullStateDictConfig, FullOptimStateDictConfig),
    StateDictType.LOCAL_STATE_DICT: (LocalStateDictConfig, LocalOptimStateDictConfig),
    StateDictType.SHARDED_STATE_DICT: (ShardedStateDictConfig, ShardedOptimStateDictConfig),
}


class FullyShardedDataParallel(Module):
    """A wrapper that divides the parameters of `module` which no wrapper inside it has taken.

    process_group      over which ranks; for hybrid strategies (ranks that divide parameters, ranks that have the same part)
    sharding_strategy  what is divided, and when: FULL_SHARD if nothing is said
    cpu_offload        whether a rank's piece and its gradient are in main memory
    auto_wrap_policy   which modules inside get a wrapper of their own: see wrap.py
    backward_prefetch  when backward asks for the parameters of the next wrapper
    mixed_precision    dtypes of computation, reduction and buffers
    ignored_modules, ignored_states   what is left alone
    param_init_fn      gives modules on the meta device memory and values, instead of their reset_parameters
    device_id          where to compute; the module is brought there
    sync_module_states whether rank 0 sends its parameters and buffers to all at first
    forward_prefetch   whether forward asks for the parameters of the next wrapper early; for models that run the same way each time
    limit_all_gathers  nothing to do here: gathers are never more than one ahead
    use_orig_params    whether `parameters()` are the program's own, each with this rank's part as its data, or one FlatParameter a wrapper
    device_mesh        instead of a process_group; of two dimensions for hybrid strategies
    """

    _is_fsdp_wrapper = True

    def __init__(
        self,
        module: Module,
        process_group: ProcessGroup | tuple[ProcessGroup, ProcessGroup] | None = None,
        sharding_strategy: ShardingStrategy | None = None,
        cpu_offload: CPUOffload | None = None,
        auto_wrap_policy: Callable | ModuleWrapPolicy | CustomPolicy | None = None,
        backward_prefetch: BackwardPrefetch | None = BackwardPrefetch.BACKWARD_PRE,
        mixed_precision: MixedPrecision | None = None,
        ignored_modules: Iterable[Module] | None = None,
        param_init_fn: Callable[[Module], None] | None = None,
        device_id: Any = None,
        sync_module_states: bool = False,
        forward_prefetch: bool = False,
        limit_all_gathers: bool = True,
        use_orig_params: bool = False,
        ignored_states: Iterable[Parameter] | Iterable[Module] | None = None,
        device_mesh: DeviceMesh | None = None,
    ):
        super().__init__()
        if mixed_precision is not None and os.environ.get("FSDP_USE_FULL_PREC_IN_EVAL") == "1":
            raise NotImplementedError("FSDP_USE_FULL_PREC_IN_EVAL=1: evaluation has the mixed precision of training here. Unset it")
        if isinstance(module, (ModuleList, ModuleDict)):
            warnings.warn(f"FSDP will not all-gather parameters for containers that do not implement forward: {module}", stacklevel=2)
        self._ignored_modules, self._ignored_params = ignored(module, ignored_modules, ignored_states)
        self.compute_device = materialize.compute_device(module, self._ignored_params, device_id)
        members = ranks.find(
            process_group, sharding_strategy, auto_wrap_policy, device_mesh, materialize.ranks_of_machine(self.compute_device)
        )
        self.process_group, self._inter_node_pg, self._device_mesh = members.group, members.replicas, device_mesh
        self.rank, self.world_size = members.group.rank(), members.group.size()
        if auto_wrap_policy is not None:
            shared = (members.group, members.replicas) if members.replicas is not None and device_mesh is None else process_group
            arguments = {
                "process_group": shared, "sharding_strategy": sharding_strategy, "cpu_offload": cpu_offload, "backward_prefetch": backward_prefetch,
                "mixed_precision": mixed_precision, "param_init_fn": param_init_fn, "device_id": device_id, "sync_module_states": sync_module_states,
                "forward_prefetch": forward_prefetch, "limit_all_gathers": limit_all_gathers, "use_orig_params": use_orig_params,
                "ignored_states": self._ignored_params, "device_mesh": device_mesh,
            }  # fmt: skip
            wrapping.auto_wrap(module, auto_wrap_policy, self._ignored_modules, self._ignored_params, arguments, FullyShardedDataParallel)
        self.sharding_strategy = _settled(sharding_strategy, self.world_size)
        self.mixed_precision, self.cpu_offload = mixed_precision or MixedPrecision(), cpu_offload or CPUOffload()
        self.backward_prefetch, self.forward_prefetch = backward_prefetch, forward_prefetch
        self.limit_all_gathers, self._use_orig_params = limit_all_gathers, use_orig_params
        self.training_state = TrainingState.IDLE
        self._comm_hook: Callable | None = None
        self._comm_hook_state: Any = None
        self._state_dict_type = StateDictType.FULL_STATE_DICT
        self._state_dict_config: StateDictConfig = FullStateDictConfig()
        self._optim_state_dict_config: OptimStateDictConfig = FullOptimStateDictConfig()
        self._loading: Any = None  # what ends a load_state_dict that is going on
        self._prepare(module, param_init_fn, sync_module_states)
        self._buffer_dtypes = state_dicts.buffer_dtypes(module, self._ignored_modules)
        self._handle: Unit | None = self._unit(module, members)
        object.__setattr__(self, NAME, State([self], self.compute_device, precision.policy(self.mixed_precision), auto_reshard=True))
        self._fsdp_wrapped_module = module
        if self._handle is not None:
            self._state.groups = [self._handle.group]
        self.register_load_state_dict_post_hook(_end_load)

    def _prepare(self, module: Module, param_init_fn: Callable[[Module], None] | None, sync: bool) -> None:
        """Let there be values to divide, where they can be divided."""
        materialize.off_meta(module, self._ignored_modules, self._ignored_params, param_init_fn, self.compute_device)
        materialize.moved(module, self._ignored_modules, self._ignored_params, self.compute_device)
        if sync:
            groups = [group for group in (self._inter_node_pg, self.process_group) if group is not None]
            materialize.same_everywhere(module, managed(module, self._ignored_params), groups)

    def _unit(self, module: Module, members: ranks.Ranks) -> Unit | None:
        found = list(managed(module, self._ignored_params))
        materialize.validate(module, found, self._use_orig_params)
        if not found:
            return None
        strategy = self.sharding_strategy
        meshes = members.meshes(strategy, self.compute_device.type)
        stays = strategy is ShardingStrategy.NO_SHARD or strategy in ranks.WHOLE_UNTIL_BACKWARD
        return Unit(
            module, found, meshes, self.compute_device, own_names=self._use_orig_params, aligned_to=self.mixed_precision.param_dtype,
            low_precision_grads=self.mixed_precision.keep_low_precision_grads, prefetch=self.backward_prefetch,
            reshard_to=None if stays else meshes, mp_policy=precision.policy(self.mixed_precision),
            offload_policy=CPUOffloadPolicy() if self.cpu_offload.offload_params else None,
        )  # fmt: skip

    # -- the module inside

    @property
    def module(self) -> Module:
        """The module inside; without a checkpoint_wrapper around it."""
        inside: Any = self._fsdp_wrapped_module
        return getattr(inside, "_checkpoint_wrapped_module", inside)

    @property
    def _has_params(self) -> bool:
        return self._handle is not None

    @property
    def _flat_param(self) -> FlatParameter | None:
        return self._handle.flat_param if self._handle is not None else None

    @property
    def _state(self) -> State:
        return self.__dict__[NAME]

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "_fsdp_wrapped_module":
                raise
            return getattr(self._fsdp_wrapped_module, name)

    __getattr__.reads_registries = True  # type: ignore[attr-defined]  # it asks Module's first

    def __getitem__(self, key: int) -> Any:
        return self._fsdp_wrapped_module[key]  # type: ignore[index]

    @staticmethod
    def fsdp_modules(module: Module, root_only: bool = False) -> list[FullyShardedDataParallel]:
        """All wrappers in a tree, the module itself included; those that are in no other one, with `root_only`."""
        found = [inner for inner in module.modules() if isinstance(inner, FullyShardedDataParallel)]
        if not root_only:
            return found
        inside = {inner for outer in found for inner in outer.modules() if inner is not outer}
        return [one for one in found if one not in inside]

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Parameter]]:
        """As of any module; within summon_full_params, by the names of the model without wrappers."""
        return self._named(super().named_parameters(*args, **kwargs))

    def named_buffers(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Tensor]]:
        """As of any module; within summon_full_params, by the names of the model without wrappers."""
        return self._named(super().named_buffers(*args, **kwargs))

    def _named(self, found: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        summoned = self.training_state is TrainingState.SUMMON_FULL_PARAMS
        for name, tensor in found:
            yield name.replace(PREFIX, "") if summoned else name, tensor

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        """Move what this rank keeps."""
        with self._handle.holding_flat() if self._handle is not None else nullcontext():
            return super()._apply(*args, **kwargs)

    def apply(self, fn: Callable[[Module], None]) -> FullyShardedDataParallel:
        """Call fn(module) for every module inside and this one, while its parameters are whole; what it writes stays."""
        self._assert_state(TrainingState.IDLE)
        with whole_parameters(self, writeback=True), self._in_state(TrainingState.SUMMON_FULL_PARAMS):
            return super().apply(fn)

    # -- training

    def check_is_root(self) -> bool:
        """Whether no other wrapper is around this one."""
        self._lazy_init()
        return bool(self._state.is_root)

    def _lazy_init(self) -> None:
        """The first time: this is the root, and the wrappers inside it are not."""
        if self._state.is_root is not None:
            return
        for wrapper in self.fsdp_modules(self):
            wrapper._refresh()
        self._state.lazy_init()
        for wrapper in self.fsdp_modules(self):
            if wrapper.mixed_precision.buffer_dtype is not None:
                precision.cast_buffers(wrapper._fsdp_wrapped_module, wrapper._buffer_dtypes, wrapper.mixed_precision.buffer_dtype)

    def _refresh(self) -> None:
        """See what the program has done to the parameters since."""
        if self._handle is not None and self._handle.refresh():
            self._state.groups = [self._handle.group]
            self._handle.group.communication = self._state.communication
            if self._comm_hook is not None:
                self._handle.group.reduce_by(self._comm_hook, self._comm_hook_state)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module inside gives, with whole parameters meanwhile."""
        self._lazy_init()
        state = self._state
        if state.is_root and state.iteration.ending and modes.state.task is None:
            state.reset()  # the backward before has failed
        if self._handle is not None and not self._handle.group.is_whole:
            self._refresh()
        if state.is_root and self.mixed_precision.cast_root_forward_inputs:
            args, kwargs = _cast_forward_inputs(self.mixed_precision.param_dtype, *args, **kwargs)
        again = state.stage is Stage.BEFORE_BACKWARD  # a checkpointed forward
        with self._in_state(TrainingState.FORWARD_BACKWARD):
            try:
                args, kwargs = state.before_forward(self, args, kwargs)
                output = self._fsdp_wrapped_module(*args, **kwargs)
                output = state.after_forward(self, args, output)
            except BaseException:
                if not again:
                    self._forget_forward()
                raise
        if state.is_root and self.forward_prefetch:
            self._follow_order()
        return output

    def _forget_forward(self) -> None:
        """A forward has failed: the next one begins as if this had not been."""
        state = self._state
        state.stage = Stage.IDLE
        if self._handle is not None:
            self._handle.group.forget_forward()
        if state.iteration.root is self:
            state.iteration.root = None
            state.communication.order.clear()
            for group in state.all_groups():
                group.places.clear()

    def _follow_order(self) -> None:
        """Let each wrapper ask for the parameters of the one that came after it in this forward."""
        group_of = {id(wrapper._handle.group): wrapper._state for wrapper in self.fsdp_modules(self) if wrapper._handle is not None}
        order = [group_of[id(group)] for group in self._state.communication.order if id(group) in group_of]
        for one, following in pairwise(order):
            one.to_prefetch_in_forward = [following]

    @contextmanager
    def no_sync(self) -> Generator[None]:
        """Within it, backward reduces no gradients: they add up on each rank, whole, until the first backward outside."""
        self._lazy_init()
        if not self._state.is_root:
            raise RuntimeError("`no_sync()` on inner FSDP instances is not supported. Please call `no_sync()` on root FSDP module.")
        self._assert_state(TrainingState.IDLE)
        groups = [(wrapper, wrapper._handle.group) for wrapper in self.fsdp_modules(self) if wrapper._handle is not None]
        for wrapper, group in groups:
            group.reduce_grads = group.all_reduce_grads = False
            group.reshard_after_backward = wrapper.sharding_strategy not in ranks.WHOLE_UNTIL_BACKWARD
        try:
            yield
        finally:
            for _, group in groups:
                group.reduce_grads = group.all_reduce_grads = group.reshard_after_backward = True

    @no_grad()
    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Tensor:
        """Scale all gradients so that their norm, over all ranks and as one vector, is at most max_norm; returns the norm. All ranks call it."""
        self._lazy_init()
        if not self._state.is_root:
            raise RuntimeError("`clip_grad_norm_()` should only be called on the root FSDP instance")
        self._assert_state(TrainingState.IDLE)
        units = [wrapper._handle for wrapper in self.fsdp_modules(self) if wrapper._handle is not None]
        if not any(unit.uses_sharded_strategy for unit in units):
            return clip_grad_norm_(self.parameters(), max_norm, norm_type)
        divided = {p: None for unit in units if unit.uses_sharded_strategy for p in unit.parameters}
        whole = [p for p in self.parameters() if p not in divided]
        return clipping.clip(list(divided), whole, float(max_norm), float(norm_type), self.process_group, self.compute_device, self.rank)

    def register_comm_hook(self, state: object, hook: Callable) -> None:
        """Let hook(state, gradient, piece) reduce gradients: from the flat gradient of this rank to its piece of the mean. Without a piece, in place, for NO_SHARD.
        Before the first forward, and on the root."""
        if not self.check_is_root():
            raise AssertionError("register_comm_hook can only be called on a root instance.")
        for wrapper in self.fsdp_modules(self):
            if wrapper.sharding_strategy in ranks.HYBRID:
                raise AssertionError(f"Communication hook is not supported for hybrid strategies: {wrapper.sharding_strategy}")
            if wrapper._comm_hook is not None:
                raise AssertionError("A communication hook is already registered")
            if not callable(hook):
                raise ValueError(f"The communication hook must be callable but got {hook}")
            wrapper._comm_hook, wrapper._comm_hook_state = hook, state
            if wrapper._handle is not None:
                wrapper._handle.group.reduce_by(hook, state)

    def _assert_state(self, state: TrainingState) -> None:
        if self.training_state is not state:
            raise ValueError(f"expected to be in states {[state]} but current state is {self.training_state}")

    @contextmanager
    def _in_state(self, state: TrainingState) -> Iterator[None]:
        before, self.training_state = self.training_state, state
        try:
            yield
        finally:
            self.training_state = before

    # -- whole parameters

    @staticmethod
    @contextmanager
    def summon_full_params(
        module: Module,
        recurse: bool = True,
        writeback: bool = True,
        rank0_only: bool = False,
        offload_to_cpu: bool = False,
        with_grads: bool = False,
    ) -> Generator[None]:
        """Within it the modules hold whole parameters. All ranks enter it; not within forward or backward.

        recurse         those of wrappers inside, too
        writeback       what is written to them stays; each rank keeps its own part of what it has written
        rank0_only      on the first rank alone; the others see what they always see
        offload_to_cpu  in main memory
        with_grads      with whole gradients; with use_orig_params
        """
        chosen = FullyShardedDataParallel.fsdp_modules(module)
        if not recurse:
            chosen = [wrapper for wrapper in chosen if wrapper is module]
        with ExitStack() as stack:
            for wrapper in chosen:
                check_summon(wrapper, writeback, rank0_only, offload_to_cpu, with_grads)
                if wrapper.training_state is not TrainingState.IDLE or modes.state.task is not None:
                    now = (
                        "when already unsharding parameters"
                        if wrapper.training_state is TrainingState.SUMMON_FULL_PARAMS
                        else "during forward/backward"
                    )
                    raise AssertionError(f"Cannot manually unshard parameters {now}")
                how = {"writeback": writeback, "rank0_only": rank0_only, "offload_to_cpu": offload_to_cpu, "with_grads": with_grads}
                stack.enter_context(whole_parameters(wrapper, **how))
                stack.enter_context(wrapper._in_state(TrainingState.SUMMON_FULL_PARAMS))
            yield

    # -- states of the model

    @staticmethod
    def set_state_dict_type(
        module: Module, state_dict_type: StateDictType, state_dict_config: StateDictConfig | None = None,
        optim_state_dict_config: OptimStateDictConfig | None = None,
    ) -> StateDictSettings:  # fmt: skip
        """Say what state_dict, load_state_dict and optim_state_dict of all wrappers in a tree are about; returns what was said before."""
        warnings.warn(
            "FSDP.state_dict_type() and FSDP.set_state_dict_type() are being deprecated. Please use get_state_dict() and set_state_dict() of "
            "torch.distributed.checkpoint.state_dict, which know FSDP1, FSDP2 and DDP.",
            FutureWarning,
            stacklevel=2,
        )
        return _set_type(module, state_dict_type, state_dict_config, optim_state_dict_config)

    @staticmethod
    def get_state_dict_type(module: Module) -> StateDictSettings:
        """What was said last; AssertionError if not the same to all wrappers in a tree."""
        found = [
            StateDictSettings(wrapper._state_dict_type, wrapper._state_dict_config, wrapper._optim_state_dict_config)
            for wrapper in FullyShardedDataParallel.fsdp_modules(module)
        ]
        if any(one != found[0] for one in found):
            raise AssertionError(f"All FSDP modules must have the same state dict settings. Got {found}.")
        return found[0] if found else None  # type: ignore[return-value]

    @staticmethod
    @contextmanager
    def state_dict_type(
        module: Module, state_dict_type: StateDictType, state_dict_config: StateDictConfig | None = None,
        optim_state_dict_config: OptimStateDictConfig | None = None,
    ) -> Generator[None]:  # fmt: skip
        """Within it, what set_state_dict_type says."""
        before = FullyShardedDataParallel.set_state_dict_type(module, state_dict_type, state_dict_config, optim_state_dict_config)
        try:
            yield
        finally:
            if before.state_dict_type is not None:
                _set_type(module, before.state_dict_type, before.state_dict_config, before.optim_state_dict_config)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The state of the module inside, in the form that set_state_dict_type says. All ranks call it."""
        prefix = kwargs.get("prefix", args[1] if len(args) > 1 else "")
        self._refresh()
        return state_dicts.save(self, lambda: super(FullyShardedDataParallel, self).state_dict(*args, **kwargs), prefix)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        _end_load(self)
        self._refresh()
        self._loading = state_dicts.begin_load(self, state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    # -- states of optimizers

    @staticmethod
    def optim_state_dict(
        model: Module, optim: Optimizer, optim_state_dict: dict[str, Any] | None = None, group: Any = None
    ) -> dict[str, Any]:
        """The state of an optimizer by names of parameters, in the form that set_state_dict_type says. All ranks call it."""
        settings = FullyShardedDataParallel.get_state_dict_type(model)
        config = settings.optim_state_dict_config
        return optim_state.by_names(
            model, optim_state.groups_of(model, optim), optim.state_dict() if optim_state_dict is None else optim_state_dict,
            whole=settings.state_dict_type is StateDictType.FULL_STATE_DICT, rank0_only=getattr(config, "rank0_only", False),
            on_cpu=config.offload_to_cpu, group=group,
        )  # fmt: skip

    @staticmethod
    def optim_state_dict_to_load(
        model: Module, optim: Optimizer, optim_state_dict: dict[str, Any], is_named_optimizer: bool = False, load_directly: bool = False,
        group: Any = None,
    ) -> dict[str, Any]:  # fmt: skip
        """What `optim.load_state_dict` takes, from what optim_state_dict gave."""
        config = FullyShardedDataParallel.get_state_dict_type(model).optim_state_dict_config
        sent = getattr(config, "rank0_only", False)
        found = optim_state.to_load(
            model, optim_state.groups_of(model, optim), optim_state_dict, sent=sent, by_name=is_named_optimizer, group=group
        )
        if load_directly:
            optim.load_state_dict(found)
        return found

    @staticmethod
    def full_optim_state_dict(
        model: Module, optim: Optimizer, optim_input: Any = None, rank0_only: bool = True, group: Any = None
    ) -> dict[str, Any]:
        """The old name of optim_state_dict, with whole tensors."""
        _old("full_optim_state_dict", "optim_state_dict", optim_input)
        chosen = optim_state.groups_of(model, optim, optim_input)
        return optim_state.by_names(model, chosen, optim.state_dict(), whole=True, rank0_only=rank0_only, on_cpu=True, group=group)

    @staticmethod
    def sharded_optim_state_dict(model: Module, optim: Optimizer, group: Any = None) -> dict[str, Any]:
        """The old name of optim_state_dict, with DTensors."""
        _old("sharded_optim_state_dict", "optim_state_dict")
        chosen = optim_state.groups_of(model, optim)
        return optim_state.by_names(model, chosen, optim.state_dict(), whole=False, rank0_only=False, on_cpu=True, group=group)

    @staticmethod
    def shard_full_optim_state_dict(
        full_optim_state_dict: dict[str, Any], model: Module, optim_input: Any = None, optim: Optimizer | None = None
    ) -> dict[str, Any]:
        """The old name of optim_state_dict_to_load, for whole tensors on every rank."""
        _old("shard_full_optim_state_dict", "optim_state_dict_to_load", optim_input)
        return optim_state.to_load(model, optim_state.groups_of(model, optim, optim_input), full_optim_state_dict)

    @staticmethod
    def flatten_sharded_optim_state_dict(sharded_optim_state_dict: dict[str, Any], model: Module, optim: Optimizer) -> dict[str, Any]:
        """The old name of optim_state_dict_to_load, for DTensors."""
        _old("flatten_sharded_optim_state_dict", "optim_state_dict_to_load")
        return optim_state.to_load(model, optim_state.groups_of(model, optim), sharded_optim_state_dict)

    @staticmethod
    def scatter_full_optim_state_dict(
        full_optim_state_dict: dict[str, Any] | None,
        model: Module,
        optim_input: Any = None,
        optim: Optimizer | None = None,
        group: Any = None,
    ) -> dict[str, Any]:
        """The old name of optim_state_dict_to_load, for whole tensors that rank 0 alone has."""
        _old("scatter_full_optim_state_dict", "optim_state_dict_to_load", optim_input)
        return optim_state.to_load(
            model, optim_state.groups_of(model, optim, optim_input), full_optim_state_dict or {}, sent=True, group=group
        )

    @staticmethod
    def rekey_optim_state_dict(
        optim_state_dict: dict[str, Any],
        optim_state_key_type: OptimStateKeyType,
        model: Module,
        optim_input: Any = None,
        optim: Optimizer | None = None,
    ) -> dict[str, Any]:
        """The state of an optimizer of a model without wrappers, by names in place of numbers, or the other way round."""
        if optim_state_key_type not in (OptimStateKeyType.PARAM_NAME, OptimStateKeyType.PARAM_ID):
            raise AssertionError(f"Expected an OptimStateKeyType, found {optim_state_key_type!r}")
        chosen = optim_state.groups_of(model, optim, optim_input)
        return optim_state.rekeyed(model, chosen, optim_state_dict, by_name=optim_state_key_type is OptimStateKeyType.PARAM_NAME)


def _settled(strategy: ShardingStrategy | None, size: int) -> ShardingStrategy:
    """With one rank there is nothing to divide."""
    if size == 1 and strategy is not ShardingStrategy.NO_SHARD and strategy not in ranks.HYBRID:
        given = strategy or ShardingStrategy.FULL_SHARD
        warnings.warn(f"FSDP is switching to use `NO_SHARD` instead of {given} since the world size is 1.", stacklevel=3)
        return ShardingStrategy.NO_SHARD
    if size > 1 and strategy is ShardingStrategy.NO_SHARD:
        warnings.warn(
            "The `NO_SHARD` sharding strategy is deprecated. If having issues, please use `DistributedDataParallel` instead.",
            FutureWarning,
            stacklevel=3,
        )
    return strategy or ShardingStrategy.FULL_SHARD


def _end_load(wrapper: Any, incompatible: Any = None) -> None:
    """A load_state_dict has come to its end, or the one before has not."""
    for names in incompatible or ():
        names[:] = [name.replace(PREFIX, "") for name in names]
    held, wrapper._loading = wrapper._loading, None
    if held is not None:
        held.__exit__(None, None, None)


def _set_type(
    module: Module, kind: StateDictType, config: StateDictConfig | None, optim_config: OptimStateDictConfig | None
) -> StateDictSettings:
    wanted, optim_wanted = CONFIGS[kind]
    config, optim_config = wanted() if config is None else config, optim_wanted() if optim_config is None else optim_config
    if type(config) is not wanted:
        raise RuntimeError(f"Expected state_dict_config of type {wanted} but got {type(config)}")
    if type(optim_config) is not optim_wanted:
        raise RuntimeError(f"Expected optim_state_dict_config of type {optim_wanted} but got {type(optim_config)}")
    wrappers = FullyShardedDataParallel.fsdp_modules(module)
    before = StateDictSettings(None, None, None)  # type: ignore[arg-type]
    for wrapper in wrappers:
        if before.state_dict_type not in (None, wrapper._state_dict_type):
            raise AssertionError("All FSDP modules should have the same state_dict_type.")
        before = StateDictSettings(wrapper._state_dict_type, wrapper._state_dict_config, wrapper._optim_state_dict_config)
    for wrapper in wrappers:
        wrapper._state_dict_type, wrapper._state_dict_config, wrapper._optim_state_dict_config = kind, config, optim_config
    return before


def _old(name: str, instead: str, optim_input: Any = None) -> None:
    warnings.warn(
        f"``FullyShardedDataParallel.{name}``is being deprecated and is replaced by ``FullyShardedDataParallel.{instead}``.",
        FutureWarning,
        stacklevel=3,
    )
    if optim_input is not None:
        warnings.warn("The `optim_input` argument is deprecated: leave it out, and pass the optimizer", FutureWarning, stacklevel=3)
