"""DistributedDataParallel: the same model in every process, each with batches of its own, and gradients that are averaged while backward runs.

What this file does itself is the order of things around a forward pass. How gradients travel is `reducer`'s business.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from flambeau import modes
from flambeau.devices import device as as_device
from flambeau.distributed.algorithms.join import Join, Joinable, JoinHook
from flambeau.distributed.data_parallel import by_hand, delayed, replicas, uneven
from flambeau.distributed.data_parallel.arguments import check_hook, check_module, default_group
from flambeau.distributed.data_parallel.assignment import BucketCapacities, assign_by_size
from flambeau.distributed.data_parallel.buffers import Buffers, _BufferCommHook, _BufferCommHookLocation
from flambeau.distributed.data_parallel.logging_data import Logger
from flambeau.distributed.data_parallel.mixed_precision import MixedParameters, _MixedPrecision
from flambeau.distributed.data_parallel.moving import moved
from flambeau.distributed.data_parallel.reducer import Reducer
from flambeau.distributed.data_parallel.unused import _find_tensors
from flambeau.nn.modules.batchnorm import SyncBatchNorm
from flambeau.nn.modules.module import Module
from flambeau.nn.modules.sparse import Embedding, EmbeddingBag
from flambeau.tensor import Tensor

DEPRECATED = (
    "broadcast_buffers is an old name of forward_sync_buffers, and is ignored where both are given. There is one difference: "
    "broadcast_buffers=False leaves buffers as they are at the start, too, forward_sync_buffers=False gives all ranks those of rank 0 then"
)


class DistributedDataParallel(Module, Joinable):
    """A module whose parameters are the same on all ranks, because they start so and their gradients are averages over all ranks.

        gradient = 1 / ranks * sum over ranks of that rank's gradient

    which is the gradient of the mean over one large batch, where each rank has an equal share of it.

    Shape:
        whatever `module` takes and gives, for this rank's share

    module          on the device where it is to stay: `model.to(device)` comes before DistributedDataParallel(model)
    device_ids      [the GPU of this rank], which inputs are moved to; None for models on the CPU or on several devices
    bucket_cap_mb   mebibytes of gradients that travel together
    find_unused_parameters   look after each forward pass for parameters that no output depends on, and do not wait for their gradients
    gradient_as_bucket_view  `.grad` lies where it travels: saves a copy and its memory
    static_graph    every pass uses the same parameters in the same way: learned in the first, relied upon afterwards
    """

    _active_ddp_module: DistributedDataParallel | None = None

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[Any] | None = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool | None = None,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        delay_all_reduce_named_params: Sequence[tuple[str, Tensor]] | None = None,
        param_to_hook_all_reduce: Tensor | None = None,
        mixed_precision: _MixedPrecision | None = None,
        device_mesh: Any = None,
        skip_all_reduce_unused_params: bool = False,
        bucket_cap_mb_list: Sequence[float] | None = None,
        batched_grad_copy: bool = False,
        forward_sync_buffers: bool | None = None,
    ) -> None:
        super().__init__()
        Joinable.__init__(self)
        self.process_group = default_group(process_group, device_mesh)
        self.device_mesh = device_mesh
        if broadcast_buffers is not None:
            warnings.warn(f"DistributedDataParallel: {DEPRECATED}", FutureWarning, stacklevel=2)
        at_start = broadcast_buffers is not False or forward_sync_buffers is not None
        self._delay_all_reduce_params = [p for _, p in delay_all_reduce_named_params or ()]
        self.parameters_to_ignore = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        self.parameters_to_ignore |= {name for name, _ in delay_all_reduce_named_params or ()}
        self.module = module
        self._module_parameters = [p for name, p in module.named_parameters() if name not in self.parameters_to_ignore]
        check_module(module, self._module_parameters, self._delay_all_reduce_params, device_ids, output_device)
        self.is_multi_device_module = len({p.device for p in self._module_parameters}) > 1
        self.device_type = next((p.device.type for p in self._module_parameters), "cpu")
        self.device = next((p.device for p in self._module_parameters), as_device("cpu"))
        self.device_ids = None if not device_ids or self.is_multi_device_module else [_index(one) for one in device_ids]
        self.output_device = None if self.device_ids is None else self.device_ids[0] if output_device is None else _index(output_device)
        self.dim = dim
        self.static_graph = False
        self.forward_sync_buffers = broadcast_buffers is not False if forward_sync_buffers is None else forward_sync_buffers
        self.find_unused_parameters = find_unused_parameters
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.skip_all_reduce_unused_params = skip_all_reduce_unused_params
        self.batched_grad_copy = batched_grad_copy
        self.mixed_precision = mixed_precision
        self.require_backward_grad_sync = True
        self.require_forward_param_sync = True
        self.broadcast_bucket_size = replicas.AT_ONCE
        self._buckets = BucketCapacities.create(bucket_cap_mb, bucket_cap_mb_list)
        self.bucket_bytes_cap, self.bucket_bytes_cap_default = self._buckets.bucket_bytes_cap, bucket_cap_mb is None
        self.bucket_bytes_cap_list = list(self._buckets.per_bucket_bytes_caps)
        self._comm_hooks: list[tuple[Callable, Any]] = []
        self._buffers_of_model = Buffers(self)
        self._divide_by_initial_world_size = True
        if check_reduction:
            warnings.warn("check_reduction has no effect any more: whether gradients came is always checked", FutureWarning, stacklevel=2)
        named = [(name, p) for name, p in self._named_to_reduce()]
        if init_sync:
            replicas.check(self.process_group, [p for _, p in named], [name for name, _ in named])
            self._sync_states(buffers=at_start)
        self._mixed = MixedParameters(module, mixed_precision, self.parameters_to_ignore) if mixed_precision is not None else None
        self._static_wanted = static_graph
        self._make_reducer(named)
        if self._delay_all_reduce_params:
            delayed.install(self, param_to_hook_all_reduce)
        if static_graph:
            self._set_static_graph()

    # ---- making ----

    def _named_to_reduce(self) -> list[tuple[str, Tensor]]:
        """The parameters whose gradients are averaged, each once."""
        seen: dict[int, tuple[str, Tensor]] = {}
        for name, p in self.module.named_parameters():
            if p.requires_grad and name not in self.parameters_to_ignore:
                seen.setdefault(id(p), (name, p))
        return list(seen.values())

    def _sync_states(self, *, buffers: bool) -> None:
        """Give all ranks the parameters and buffers of rank 0."""
        states = [p.detach() for name, p in self.module.named_parameters() if name not in self.parameters_to_ignore]
        if buffers:
            states += [b.detach() for name, b in self.module.named_buffers() if name not in self.parameters_to_ignore]
        replicas.broadcast(self.process_group, states, buffer_size=self.broadcast_bucket_size)

    def _make_reducer(self, named: Sequence[tuple[str, Tensor]]) -> None:
        params = [p for _, p in named]
        sparse = self._sparse_parameters()
        expect_sparse = [id(p) in sparse for p in params]
        caps = self._buckets
        if params:
            limits, each = caps.compute_bucket_size_limits(self._static_wanted, self.find_unused_parameters)
            indices, sizes = assign_by_size(params, limits, expect_sparse)
            if each:  # limits one by one are for the order in which gradients come
                indices, sizes = assign_by_size(params[::-1], each, expect_sparse[::-1], list(range(len(params)))[::-1])
                indices, sizes = indices[::-1], sizes[::-1]
        else:
            indices, sizes = [], []
        self.reducer = Reducer(
            params, indices[::-1], sizes[::-1], self.process_group, expect_sparse, caps.bucket_bytes_cap,
            self.find_unused_parameters, self.gradient_as_bucket_view, {i: name for i, (name, _) in enumerate(named)},
            caps.first_bucket_bytes_cap, self.skip_all_reduce_unused_params, False, caps.per_bucket_bytes_caps, self.batched_grad_copy,
        )  # fmt: skip
        self.logger: Logger | None = Logger(self.reducer)
        self.logger.set_construction_data_and_log(
            type(self.module).__name__,
            self.device_ids or [],
            -1,
            self.forward_sync_buffers,
            any(isinstance(inner, SyncBatchNorm) for inner in self.module.modules()),
            False,
        )
        self.reducer.set_logger(self.logger)
        if self._mixed is not None and self.mixed_precision is not None and self.mixed_precision.reduce_dtype is not None:
            self.reducer._set_mixed_precision_param_dtype(self.mixed_precision.reduce_dtype)

    def _sparse_parameters(self) -> set[int]:
        return {id(inner.weight) for inner in self.module.modules() if isinstance(inner, (Embedding, EmbeddingBag)) and inner.sparse}

    # ---- a forward pass ----

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """What the module gives for this rank's share."""
        inputs, kwargs = self._pre_forward(*inputs, **kwargs)
        with self._inside_ddp_forward():
            output = self.module(*inputs, **kwargs)
        return self._post_forward(output)

    def _pre_forward(self, *inputs: Any, **kwargs: Any) -> tuple[Any, Any]:
        records, reducer = modes.state.grad, self.reducer
        if records and self.require_backward_grad_sync:
            reducer.prepare_for_forward()
        if self._join_config.enable:
            work = Join.notify_join_context(self)
            if work is not None:
                reducer._set_forward_pass_work_handle(work, self._divide_by_initial_world_size)
        if records and not reducer.rebuilt:
            reducer._rebuild_buckets()
        if self._buffers_of_model.before_forward():
            self._sync_buffers()
        if self._join_config.enable:
            self._check_global_requires_backward_grad_sync(is_joined_process=False)
        if self.device_ids:
            inputs, kwargs = moved((inputs, kwargs), as_device(self.device_type, self.device_ids[0]))
        if self._mixed is not None:
            inputs, kwargs = self._mixed.enter(inputs, kwargs)
        return inputs, kwargs

    def _post_forward(self, output: Any) -> Any:
        if self._mixed is not None:
            self._mixed.leave()
        if self._buffers_of_model.after_forward():
            self._sync_buffers()
        if modes.state.grad and self.require_backward_grad_sync:
            self.require_forward_param_sync = True
            self.reducer.prepare_for_backward(_find_tensors(output) if self.find_unused_parameters and not self.static_graph else ())
        else:
            self.require_forward_param_sync = False
        return output

    @contextmanager
    def _inside_ddp_forward(self) -> Iterator[None]:
        before = DistributedDataParallel._active_ddp_module
        DistributedDataParallel._active_ddp_module = self
        try:
            yield
        finally:
            DistributedDataParallel._active_ddp_module = before

    @classmethod
    def _get_active_ddp_module(cls) -> DistributedDataParallel | None:
        """The model whose forward is running."""
        return cls._active_ddp_module

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Within it gradients add up on each rank alone; the first pass after it averages what has come together. The forward passes count."""
        before = self.require_backward_grad_sync
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def train(self, mode: bool = True) -> DistributedDataParallel:
        """Set training mode here and in the module."""
        super().train(mode)
        return self

    # ---- buffers ----

    @property
    def broadcast_buffers(self) -> bool:
        """The old name of forward_sync_buffers."""
        return self.forward_sync_buffers

    @broadcast_buffers.setter
    def broadcast_buffers(self, value: bool) -> None:
        self.forward_sync_buffers = value

    def will_sync_module_buffers(self) -> bool:
        """Whether rank 0's buffers are sent to all in the next forward pass."""
        return self._buffers_of_model.wanted()

    def _sync_buffers(self) -> None:
        with modes.recording(False):
            source = self._find_common_rank(self._distributed_rank, True) if self._join_config.enable else 0
            self._sync_module_buffers(source)

    def _sync_module_buffers(self, authoritative_rank: int) -> None:
        self._buffers_of_model.send(authoritative_rank)

    @property
    def modules_buffers(self) -> list[Tensor]:
        """The buffers that are sent."""
        return list(self._buffers_of_model.named.values())

    @property
    def named_module_buffers(self) -> dict[str, Tensor]:
        """The buffers that are sent, by name."""
        return self._buffers_of_model.named

    def _register_buffer_comm_hook(
        self, state: Any, hook: Callable, comm_hook_location: Any = _BufferCommHookLocation.POST_FORWARD
    ) -> None:
        """Let hook(state, {name: buffer}) send buffers, instead of a broadcast from rank 0."""
        if not callable(hook):
            raise TypeError(f"a buffer hook is a callable (state, {{name: buffer}}) -> futures or None, found {hook!r}")
        self.buffer_hook = _BufferCommHook(hook, state, comm_hook_location)

    # ---- hooks for gradients ----

    def register_comm_hook(self, state: object, hook: Callable) -> None:
        """Let hook(state, bucket) -> Future send each bucket. The hook averages: what the future holds becomes the gradients."""
        check_hook(hook)
        self._comm_hooks.append((hook, state))
        self.reducer._register_comm_hook(state, hook)
        if self.logger is not None:
            self.logger._set_comm_hook_name(getattr(hook, "__qualname__", type(hook).__qualname__))

    def _register_builtin_comm_hook(self, comm_hook_type: Any) -> None:
        """A hook by its number: all-reduce, or all-reduce in float16."""
        self.reducer._register_comm_hook(None, by_hand.hook_of(comm_hook_type, self.process_group))
        if self.logger is not None:
            self.logger._set_comm_hook_name(str(comm_hook_type))

    def _register_fused_optim(self, optim: type, *args: Any, optim_params: Any = None, **kwargs: Any) -> None:
        """Make steps of an optimizer with the gradients of each bucket as soon as these are averaged."""
        from flambeau.distributed.algorithms._optimizer_overlap import _as_overlapped_optim

        _as_overlapped_optim(optim, optim_params, *args, **kwargs).register_ddp(self)

    def _set_static_graph(self) -> None:
        """Every pass uses the same parameters in the same way: see static_graph."""
        if self.static_graph:
            warnings.warn("_set_static_graph: the graph is static already", stacklevel=2)
            return
        self.reducer._set_static_graph()
        self.static_graph = True
        if self.logger is not None:
            self.logger._set_static_graph()
        if self.find_unused_parameters:
            warnings.warn(
                "with static_graph=True, find_unused_parameters=True changes nothing: which are unused is learned in the first pass",
                stacklevel=2,
            )

    def _remove_autograd_hooks(self) -> None:
        self.reducer._remove_autograd_hooks()

    def _check_reducer_finalized(self) -> None:
        self.reducer._check_reducer_finalized()

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        """What is known about this model and its last pass, by PyTorch's names."""
        assert self.logger is not None
        return self.logger._get_ddp_logging_data()

    def _set_ddp_runtime_logging_sample_rate(self, sample_rate: int) -> None:
        if sample_rate < 1:
            raise ValueError(f"DDP runtime logging sample rate should be equal or greater than 1, found {sample_rate}")
        self.reducer._set_ddp_runtime_logging_sample_rate(sample_rate)

    def _get_data_parallel_params(self, module: Module, named_params: bool = False) -> Iterator[Any]:
        """The parameters that take part."""
        found = self._named_to_reduce()
        yield from (found if named_params else [p for _, p in found])

    @staticmethod
    def _set_params_and_buffers_to_ignore_for_model(module: Module, params_and_buffers_to_ignore: Sequence[str]) -> None:
        """Leave these names out of everything. Before DistributedDataParallel(module)."""
        module._ddp_params_and_buffers_to_ignore = params_and_buffers_to_ignore

    def _update_process_group(self, new_process_group: Any) -> None:
        """Go on with other processes."""
        self.process_group = new_process_group
        self.reducer._update_process_group(new_process_group)

    # ---- uneven inputs ----

    def join(self, divide_by_initial_world_size: bool = True, enable: bool = True, throw_on_early_termination: bool = False) -> Join:
        """`with model.join():` around the loop: ranks that have run out of data take part in the others' collectives until all have."""
        return Join([self], enable, throw_on_early_termination, divide_by_initial_world_size=divide_by_initial_world_size)

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What a rank without data does instead of a pass."""
        return uneven._DDPJoinHook(self, divide_by_initial_world_size=kwargs.get("divide_by_initial_world_size", True))

    @property
    def join_device(self) -> Any:
        return self.device

    @property
    def join_process_group(self) -> Any:
        return self.process_group

    @property
    def _distributed_rank(self) -> int:
        return self.process_group.rank()

    def _check_global_requires_backward_grad_sync(self, is_joined_process: bool) -> Any:
        """Ask whether any rank averages gradients in this pass; a rank without data says nothing and hears the answer."""
        return uneven.announce(self, not is_joined_process and self.require_backward_grad_sync)

    def _find_common_rank(self, input_rank: int, rank_cond: bool) -> int:
        return uneven.largest_rank(self, input_rank if rank_cond else -1)

    def _sync_final_model(self, is_last_joiner: bool) -> None:
        uneven.sync_final(self, is_last_joiner)

    # ---- copies ----

    def __getstate__(self) -> dict[str, Any]:
        attributes = copy.copy(self.__dict__)
        for name in ("process_group", "reducer", "logger"):
            attributes.pop(name, None)
        return attributes

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Made anew from a file or a copy: in the default group, and with gradients that travel anew."""
        self.process_group = default_group(None, None)
        super().__setstate__(state)
        self.__dict__.setdefault("forward_sync_buffers", self.__dict__.pop("broadcast_buffers", True))  # of files of older versions
        self.__dict__.setdefault("require_forward_param_sync", True)
        self.__dict__.setdefault("require_backward_grad_sync", True)
        static = self.static_graph
        self.__dict__["static_graph"] = False
        self._make_reducer(self._named_to_reduce())
        for hook, hook_state in self._comm_hooks:
            self.reducer._register_comm_hook(hook_state, hook)
        if static:
            self._set_static_graph()


def _index(device: Any) -> int:
    return device if isinstance(device, int) else as_device(device).index or 0
