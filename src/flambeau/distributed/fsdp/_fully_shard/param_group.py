"""ParamGroup: parameters that travel together, and when they are whole.

stage       forward has   IDLE -> FORWARD -> IDLE, backward   IDLE -> BEFORE_BACKWARD -> AFTER_BACKWARD -> IDLE
parameters  sharded -> whole in before_forward(), back in after_forward(); the same around backward, whose end reduces their gradients
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from typing import Any

from flambeau import modes
from flambeau.distributed.fsdp._fully_shard.communication import Communication
from flambeau.distributed.fsdp._fully_shard.gathering import Gathering
from flambeau.distributed.fsdp._fully_shard.meshes import Meshes
from flambeau.distributed.fsdp._fully_shard.policies import (
    AllGather,
    CPUOffloadPolicy,
    DefaultAllGather,
    DefaultReduceScatter,
    MixedPrecisionPolicy,
    OffloadPolicy,
    ReduceScatter,
)
from flambeau.distributed.fsdp._fully_shard.reducing import How, Reduction
from flambeau.distributed.fsdp._fully_shard.releasing import Region, let_go
from flambeau.distributed.fsdp._fully_shard.sharded_param import ShardedParam
from flambeau.distributed.tensor import Shard
from flambeau.eager.record import attach, start
from flambeau.eager.saved import edge_of
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import zeros
from flambeau.tensor.node import Node, next_sequence

state = modes.state


class Stage(Enum):
    """Where in a pass a group, or a module, is."""

    IDLE = auto()
    FORWARD = auto()
    BEFORE_BACKWARD = auto()
    AFTER_BACKWARD = auto()


class ParamGroup:
    """Parameters of some modules, divided over the same meshes.

    reshard_to              over which meshes parameters are divided between forward and backward; None: they stay whole
    reduce_grads            whether backward reduces gradients; if not, they add up on every rank
    all_reduce_grads        whether it adds them up over replicas, too; if not, sums over the ranks that divide parameters are set aside
    reshard_after_backward  whether parameters are divided again when backward has passed
    unshard_in_backward     whether backward needs whole parameters
    unused_as_zeros         whether parameters without a gradient take part in reductions, with zeros
    hook_sees_sums          whether all_reduce_hook is given sums that are yet to be divided
    gradient_divide_factor  what sums of gradients are divided by; None: the number of ranks
    """

    def __init__(
        self, params: Sequence[Parameter], modules: Sequence[Module], meshes: Meshes, device: Any, reshard_to: Meshes | None = None, *,
        placement_of: Callable[[Parameter], Shard | None] | None = None, mp_policy: MixedPrecisionPolicy | None = None,
        offload_policy: OffloadPolicy | None = None,
    ):  # fmt: skip
        self.modules, self.meshes, self.device, self.reshard_to = tuple(modules), meshes, device, reshard_to
        self.mp_policy, self.offload_policy = mp_policy or MixedPrecisionPolicy(), offload_policy or OffloadPolicy()
        on_cpu = isinstance(self.offload_policy, CPUOffloadPolicy)
        pinned = on_cpu and device.type == "cuda" and self.offload_policy.pin_memory  # type: ignore[attr-defined]
        with modes.no_grad():
            self.params = [
                ShardedParam(param, owners, meshes, placement_of and placement_of(param), on_cpu=on_cpu, pinned=pinned)
                for param, owners in zip(params, owners_of(params, self.modules), strict=True)
            ]
        self.name = ""
        self.checked = False
        self.stage = Stage.IDLE
        self.is_whole = False
        self.regions: dict[Any, Region] = {}  # by dtype
        self.gatherings: list[Gathering] | None = None
        self.communication = Communication()
        self.places: list[int] = []  # in the order of forward passes, of those whose backward is to come
        self.since = 0  # the number of the last node before this forward
        self.all_gather: AllGather = DefaultAllGather()
        self.reduce_scatter: ReduceScatter = DefaultReduceScatter()
        self.all_reduce_hook: Callable[[Tensor], Any] | None = None
        self.reduce_grads = self.all_reduce_grads = self.reshard_after_backward = self.unshard_in_backward = True
        self.unused_as_zeros = self.unshard_async_op = self.hook_sees_sums = False
        self.gradient_divide_factor: float | None = None
        self.most_reductions = 1
        self.aside: Tensor | None = None
        self.listening: list[Any] = []  # hooks on whole parameters, while there is a graph of their gradients
        self.on_gradient: Callable[[], None] = lambda: None  # called when one of those parameters receives a gradient
        self._install_for_state_dicts()

    def __repr__(self) -> str:
        return f"ParamGroup({self.name or 'not named yet'}, {len(self.params)} parameters, {'whole' if self.is_whole else 'sharded'})"

    # -- before the first pass

    def check(self) -> None:
        """RuntimeError if parameters are not where they can be used, or are of dtypes that cannot be reduced together."""
        on_meta = [p.name for p in self.params if p.sharded._local_tensor.is_meta]
        if on_meta:
            raise RuntimeError(
                f"FSDP parameters should be materialized from meta device before training, but the following were still on meta device: {on_meta}\n"
                "Call module.to_empty(device=...), then reset_parameters() of each module, or load a state dict"
            )
        if isinstance(self.offload_policy, CPUOffloadPolicy):
            elsewhere = [(p.name, p.sharded._local_tensor.device) for p in self.params if p.sharded._local_tensor.device.type != "cpu"]
            if elsewhere:
                raise RuntimeError(
                    f"FSDP parameters should be materialized on CPU when enabling CPU offloading, found {elsewhere}. "
                    'Call module.to_empty(device="cpu"), or load a CPU state dict'
                )
        trainable = [p for p in self.params if p.sharded.requires_grad]
        for what, kinds in (
            ("original parameter", {p.sharded.dtype for p in trainable}),
            ("reduce", {self._reduce_dtype(p) for p in trainable}),
        ):
            if len(kinds) > 1:
                raise AssertionError(
                    f"FSDP expects uniform {what} dtype but got {kinds}: gradients of one group travel together. Give them one dtype, or "
                    "call fully_shard on the modules that differ first"
                )

        self.checked = True

    def adopt(self) -> None:
        """Take parameters that have been replaced since."""
        if any([param.adopt() for param in self.params]):
            self.checked = False

    def _install_for_state_dicts(self) -> None:
        """What is saved and loaded are DTensors, whenever that happens."""
        for module in dict.fromkeys(module for param in self.params for module, _ in param.owners):
            module.register_state_dict_pre_hook(lambda *_: self.be_sharded())
            module._register_load_state_dict_pre_hook(lambda *_: self.be_sharded())

    def _whole_dtype(self, param: ShardedParam) -> Any:
        wanted = self.mp_policy.param_dtype
        return wanted if wanted is not None and param.sharded.dtype.is_floating_point else param.sharded.dtype

    def _reduce_dtype(self, param: ShardedParam) -> Any:
        return self.mp_policy.reduce_dtype or self._whole_dtype(param)

    # -- whole and back

    def unshard(self, async_op: bool = False) -> None:
        """Begin to gather the parameters, if they are not whole and nothing is under way."""
        if self.is_whole or self.gatherings is not None or (self.stage is Stage.BEFORE_BACKWARD and not self.unshard_in_backward):
            return
        self.adopt()
        if not self.checked:
            self.check()
        kept = any(param.kept is not None for param in self.params)
        meshes = self.reshard_to if kept and self.reshard_to is not None else self.meshes
        with unrecorded():
            self.gatherings = [
                Gathering(
                    [p for p in self.params if self._whole_dtype(p) == kind], meshes, kind, self.device, self.all_gather, async_op=async_op
                )
                for kind in dict.fromkeys(map(self._whole_dtype, self.params))
            ]

    def wait(self) -> None:
        """Until what unshard() has begun is done. The modules hold whole parameters then."""
        if self.gatherings is None:
            return
        gatherings, self.gatherings = self.gatherings, None
        with unrecorded():
            for gathering in gatherings:
                region = self.regions.setdefault(gathering.dtype, Region(self.name))
                region.fill(gathering.whole(), [param.whole for param in gathering.params])
        self.is_whole = True

    def reshard(self) -> None:
        """Let the modules hold DTensors again, and free the whole parameters; after forward, only as far as `reshard_to` says."""
        if self.stage is not Stage.FORWARD:
            self.be_sharded()
        elif self.reshard_to is not None and self.reshard_to is not self.meshes and self.is_whole:
            with unrecorded():
                for param in self.params:
                    param.hold_kept(self.reshard_to)
            self._forget_regions()
        elif self.reshard_to is not None:
            self.be_sharded()

    def be_sharded(self) -> None:
        """Let the modules hold DTensors, whatever the stage."""
        if self.is_whole or any(param.kept is not None for param in self.params):
            for param in self.params:
                param.hold_sharded()
            self._forget_regions()

    def _forget_regions(self) -> None:
        for region in self.regions.values():
            region.memory = None
        self.is_whole = False

    # -- forward

    def before_forward(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """Make parameters whole. `inputs` are those that want gradients; what is returned in their place tells when backward has passed them."""
        again = self.stage is Stage.FORWARD  # another module of the same group
        self.stage = Stage.FORWARD
        if self.listening and not again:  # they have stayed whole, and may have been changed since
            self.be_sharded()
        self.unshard(self.unshard_async_op)
        self.wait()
        if again:
            return inputs
        self.since = next_sequence()
        return passed(self, inputs) if inputs and state.grad else inputs

    def after_forward(self, outputs: Iterable[Tensor]) -> None:
        """Free whole parameters, if that is wanted, and note the order for backward."""
        if state.task is None:  # not while a checkpointed forward runs again
            if self.reshard_to is not None and self.is_whole and state.grad and not self.listening:
                let_go(outputs, self.since, {id(r.memory._storage): r for r in self.regions.values() if r.memory is not None})
            if not self.listening:
                self.reshard()
            if state.grad:
                self.places.append(len(self.communication.order))
                self.communication.order.append(self)
        self.stage = Stage.IDLE

    # -- backward

    def before_backward(self, *, prefetch: bool = True) -> None:
        """Make parameters whole again, and begin to gather those of the group whose backward comes next."""
        if self.stage is Stage.BEFORE_BACKWARD:
            return
        self.stage = Stage.BEFORE_BACKWARD
        self.unshard(self.unshard_async_op)
        self.wait()
        if prefetch and self.places:
            place = self.places.pop()
            if place:
                self.communication.order[place - 1].prefetch(Stage.BEFORE_BACKWARD)

    def prefetch(self, stage: Stage) -> None:
        """Begin to gather the parameters, for a stage that is to come."""
        before, self.stage = self.stage, stage
        self.unshard(async_op=True)
        self.stage = before

    def after_backward(self) -> None:
        """Backward has passed: take the gradients, free the parameters, begin to reduce. Again, or without gradients, nothing happens."""
        again = state.grad  # create_graph
        self.stage = Stage.AFTER_BACKWARD
        with unrecorded():
            self.accumulate()
            self.listen(again)
            if self.reshard_after_backward and not again:
                self.reshard()
            if self.reduce_grads:
                self.reduce()

    def listen(self, on: bool) -> None:
        """While gradients can be differentiated: parameters stay whole, and a backward pass that reaches them by that way has to reduce what it brings."""
        if on and not self.listening:
            wholes = [p.whole for p in self.params if p.whole is not None and p.whole.requires_grad]
            self.listening = [whole.register_post_accumulate_grad_hook(lambda _: self.on_gradient()) for whole in wholes]
        elif not on:
            for handle in self.listening:
                handle.remove()
            self.listening = []

    def accumulate(self) -> None:
        """Take the gradients that whole parameters have received. Those that are not reduced now, and add up in their own dtype, may as well stay."""
        for param in self.params:
            if self.reduce_grads or self._reduce_dtype(param) != self._whole_dtype(param):
                param.take_gradient(self._reduce_dtype(param))

    def reduce(self) -> None:
        """Begin to reduce what has been accumulated."""
        if self.unused_as_zeros:
            for param in self.params:
                if param.accumulated is None and param.whole is not None and param.whole.requires_grad:
                    param.accumulated = zeros(param.shape, dtype=self._reduce_dtype(param), device=self.device)
        params = [param for param in self.params if param.accumulated is not None]
        if not params:
            return
        self.communication.make_room()
        divisor = self.gradient_divide_factor or self.meshes.shard_size * self.meshes.replicate_size
        replicates = self.all_reduce_grads or self.meshes.replicate_group is None
        how = How(self.reduce_scatter, divisor, replicates, self.aside, self.all_reduce_hook, self.hook_sees_sums)
        reduction = Reduction(params, self.meshes, self._reduce_dtype(params[0]), self.device, how)
        self.aside = None if how.replicates else reduction.sums
        self.communication.reductions.append(reduction)

    def finish(self) -> None:
        """Wait for what is under way at the end of backward."""
        if self.gatherings is not None:  # gathered early, and not needed
            for gathering in self.gatherings:
                gathering.wait()
            self.gatherings = None
        self.places.clear()

    def discard(self) -> None:
        """Forget a pass that has failed."""
        self.finish()
        self.stage, self.aside = Stage.IDLE, None
        self.listen(False)
        for param in self.params:
            param.accumulated = None
            if param.whole is not None:
                param.whole._grad = None
        self.be_sharded()


def owners_of(params: Sequence[Parameter], modules: Sequence[Module]) -> list[list[tuple[Module, str]]]:
    """For each parameter the modules within these that have it, with its names there; shared modules come as often as they are there."""
    found: dict[int, list[tuple[Module, str]]] = {id(param): [] for param in params}
    for module in modules:
        for inner in module.modules():
            for name, param in inner._parameters.items():
                if id(param) in found:
                    found[id(param)].append((inner, name))
    missing = sum(not owners for owners in found.values())
    if missing:
        raise AssertionError(f"{missing} parameters are not in the module tree of {list(modules)}")
    return [list(dict.fromkeys(found[id(param)])) for param in params]


class Passed(Node):
    """Stands behind the inputs of a module: gradients that come here have passed it."""

    group: ParamGroup

    def apply(self, *grads: Any) -> list:
        self.group.after_backward()
        return list(grads)


def passed(group: ParamGroup, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The same tensors, as results of a `Passed`."""
    results = [x.detach() for x in inputs]
    node = Passed()
    node.group = group
    start(node, [edge_of(x) for x in inputs], [x._array for x in inputs])
    for nr, result in enumerate(results):
        attach(result, node, nr)
    return results


class unrecorded:
    """Nothing in it is recorded, or marked as made in inference mode: what parameters and gradients do on their way concerns no caller's mode."""

    def __enter__(self) -> None:
        self.before = state.grad, state.inference
        modes.inference_mode._set(False, False)

    def __exit__(self, *error: Any) -> None:
        modes.inference_mode._set(*self.before)
