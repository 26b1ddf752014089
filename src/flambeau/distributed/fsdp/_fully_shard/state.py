"""State: the order of things around forward and backward of the modules that one call of fully_shard was given.

before_forward   the first module of an iteration is its root. Inputs are cast, groups become whole, groups that are to be prefetched are begun
after_forward    groups are freed; outputs hear when their gradients come; outputs are cast
before_backward  the gradient of an output has come: groups become whole again
...              groups find by themselves where backward has passed them
end              the root's: groups that backward has not passed (their inputs wanted no gradient) are reduced, and all reductions waited for
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from flambeau import modes
from flambeau.distributed.data_parallel.moving import mapped, moved
from flambeau.distributed.fsdp._fully_shard.communication import Communication
from flambeau.distributed.fsdp._fully_shard.param_group import ParamGroup, Stage
from flambeau.distributed.fsdp._fully_shard.policies import MixedPrecisionPolicy
from flambeau.errors import warn
from flambeau.nn.modules.module import Module
from flambeau.tensor import Tensor

NAME = "_fsdp_state"  # of the attribute in which a module has its State


def state_of(module: Module) -> State | None:
    """The state that a module was given by fully_shard."""
    return module.__dict__.get(NAME)


class Iteration:
    """What the states of one model share.

    states            all of them, as they are found from the root downwards
    root              whose forward is the outermost that is running
    ending            whether the end of this backward has been arranged
    is_last_backward  whether reductions are waited for at its end
    """

    def __init__(self) -> None:
        self.states: list[State] = []
        self.root: State | None = None
        self.ending = False
        self.is_last_backward = True


class State:
    """The hooks of some modules, whose parameters are in these groups.

    is_root       None before the first pass: the state that runs first is the root of all below it
    auto_reshard  whether the program left it open whether parameters are freed after forward: those of the root are not
    to_run        modules of this state that have not run in this forward yet
    """

    def __init__(self, modules: Sequence[Module], device: Any, mp_policy: MixedPrecisionPolicy, *, auto_reshard: bool = True):
        self.modules, self.device, self.mp_policy, self.auto_reshard = tuple(modules), device, mp_policy, auto_reshard
        self.groups: list[ParamGroup] = []
        self.is_root: bool | None = None
        self.stage = Stage.IDLE
        self.iteration, self.communication = Iteration(), Communication()
        self.to_prefetch_in_forward: list[State] = []
        self.to_prefetch_in_backward: list[State] = []
        self.to_run: set[Module] = set()
        for module in self.modules:
            module.__dict__[NAME] = self

    def install(self) -> None:
        """Be called around forward of the modules."""
        several = len(self.modules) > 1
        for module in self.modules:
            module.register_forward_pre_hook(self.before_forward, prepend=True, with_kwargs=True)
            module.register_forward_hook(self.after_forward, always_call=several)

    # -- the first pass

    def lazy_init(self) -> None:
        """Become the root of all states below, if nobody is yet."""
        if self.is_root is not None:
            return
        if len(self.modules) > 1:
            raise RuntimeError(
                f"FSDP requires a single root module but got {list(self.modules)}: call fully_shard on the module that contains them, too, and run that one"
            )
        states: dict[int, State] = {}
        for name, module in self.modules[0].named_modules():
            found = state_of(module)
            if found is None or id(found) in states:
                continue
            if found is not self and found.is_root is not None:
                raise RuntimeError(
                    f"FSDP state has already been lazily initialized for {name}\nFSDP requires running forward through the root module first: "
                    "its own forward has run before that of the module which contains it"
                )
            states[id(found)] = found
        self.is_root = True
        self.iteration.states = list(states.values())
        for found in self.iteration.states:
            found.is_root = found is self
            found.iteration = self.iteration
            found._communicate(self.communication)
        if self.auto_reshard:  # its parameters are the first that backward needs
            for group in self.groups:
                group.reshard_to = None
        self._name_groups()
        self._check_shared()
        for group in self.all_groups():
            group.adopt()
            group.check()
        self.communication.most = max((group.most_reductions for group in self.all_groups()), default=1)

    def _communicate(self, communication: Communication) -> None:
        self.communication = communication
        for group in self.groups:
            group.communication, group.on_gradient = communication, self.arrange_end

    def all_groups(self) -> list[ParamGroup]:
        """Those of all states."""
        return [group for found in self.iteration.states for group in found.groups]

    def _name_groups(self) -> None:
        names = {id(module): name for name, module in self.modules[0].named_modules()}
        for group in self.all_groups():
            group.name = ", ".join(names[id(module)] or "the root module" for module in group.modules if id(module) in names)
            for param in group.params:
                module, name = param.owners[0]
                param.name = f"{names[id(module)]}.{name}" if names.get(id(module)) else name

    def _check_shared(self) -> None:
        seen: set[int] = set()
        for group in self.all_groups():
            for param in group.params:
                if param.original in seen:
                    raise ValueError(
                        f"Parameter '{param.name}' is shared with a parameter already managed by another FSDP group. For shared/tied parameters, "
                        "use fully_shard([module_a, module_b]) to place them in the same FSDP group."
                    )
                seen.add(param.original)

    # -- forward

    def before_forward(self, module: Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """What the module is to be given."""
        if len(self.modules) > 1 and not self.to_run:
            self.to_run = set(self.modules)
        if self.stage is Stage.BEFORE_BACKWARD:  # a checkpointed forward runs again: backward takes care of the rest
            for group in self.groups:
                group.unshard()
                group.wait()
            return self._cast_inputs(args, kwargs)
        begins = self.stage is not Stage.FORWARD
        self.stage = Stage.FORWARD
        if begins:
            args, kwargs = self._as_root(args, kwargs)
        args, kwargs = self._cast_inputs(args, kwargs)
        for group in self.groups:
            inputs = with_gradients((args, kwargs))
            outputs = iter(group.before_forward(inputs))
            if inputs:
                args, kwargs = mapped(lambda x: next(outputs) if x.requires_grad else x, (args, kwargs))  # noqa: B023 - used at once
        if begins:
            for other in self.to_prefetch_in_forward:
                for group in other.groups:
                    group.prefetch(Stage.FORWARD)
        return args, kwargs

    def _as_root(self, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        self.lazy_init()
        if self.iteration.root is not None:
            return args, kwargs
        self.iteration.root = self
        return (args, kwargs) if self.device.type == "cpu" else moved((args, kwargs), self.device)

    def _cast_inputs(self, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        wanted = self.mp_policy.param_dtype
        return (args, kwargs) if wanted is None or not self.mp_policy.cast_forward_inputs else mapped(cast_to(wanted), (args, kwargs))

    def after_forward(self, module: Module, args: Any, output: Any) -> Any:
        """What the module is to give."""
        self.to_run.discard(module)
        if self.stage is Stage.BEFORE_BACKWARD or self.to_run:
            return self._cast_output(output)
        self._ended(output)
        if self.iteration.root is self:
            for other in reversed(self.iteration.states):  # those of several modules, of which not all have run
                if other is not self and other.to_run:
                    other._ended(output)
                    output = other._cast_output(output)
                    other.to_run.clear()
            self.iteration.root = None
        return self._cast_output(output)

    def _ended(self, output: Any) -> None:
        outputs = with_gradients(output)
        for group in self.groups:
            group.after_forward(outputs)
        if modes.state.grad:
            for x in outputs:
                self._listen(x)
        self.stage = Stage.IDLE

    def _listen(self, output: Tensor) -> None:
        if output._is_view():
            modules = ", ".join(type(module).__name__ for module in self.modules)
            warn(
                f"{modules} returned a view, and FSDP waits for its gradient. Written to in place, a view gets another history, and its gradient is never "
                "seen: then parameters are not gathered for backward. Write `out = out + y`, not `out += y`, or return out.clone()"
            )
        output.register_hook(self.before_backward)

    def _cast_output(self, output: Any) -> Any:
        return output if self.mp_policy.output_dtype is None else mapped(cast_to(self.mp_policy.output_dtype), output)

    # -- backward

    def before_backward(self, grad: Tensor) -> Tensor:
        """The gradient of an output has come."""
        self.stage = Stage.BEFORE_BACKWARD
        self.arrange_end()
        for group in self.groups:
            group.before_backward(prefetch=not self.to_prefetch_in_backward)
        for other in self.to_prefetch_in_backward:
            for group in reversed(other.groups):
                group.prefetch(Stage.BEFORE_BACKWARD)
        return grad

    def arrange_end(self) -> None:
        """Let this backward pass have an end."""
        if self.iteration.ending:
            return
        self.iteration.ending = True
        outermost = modes.state.task
        while outermost.outer is not None:  # the backward pass of a checkpointed part ends inside of the one that is meant
            outermost = outermost.outer
        outermost.callbacks.append(self.end_backward)

    def end_backward(self) -> None:
        """All gradients have arrived."""
        self.iteration.root, self.iteration.ending = None, False
        for found in self.iteration.states:
            found.to_run.clear()
            for group in reversed(found.groups):
                if group.stage is not Stage.AFTER_BACKWARD:
                    group.after_backward()
                group.stage = Stage.IDLE
            found.stage = Stage.IDLE
        if self.iteration.is_last_backward:
            for group in self.all_groups():
                group.finish()
            self.communication.finish()

    def reset(self) -> None:
        """Forget an iteration that has failed."""
        if self.is_root is False:
            raise RuntimeError("reset_iter_state must be called on the root FSDP module, whose forward contains those of the others")
        self.communication.discard()
        for found in self.iteration.states:
            found.to_run.clear()
            found.stage = Stage.IDLE
            for group in found.groups:
                group.discard()
        self.iteration.root, self.iteration.ending = None, False


def with_gradients(found: Any) -> list[Tensor]:
    """The tensors in a structure that want gradients, in the order of `mapped`."""
    if isinstance(found, Tensor):
        return [found] if found.requires_grad else []
    if isinstance(found, Mapping):
        found = list(found.values())
    elif is_dataclass(found) and not isinstance(found, type):
        found = [getattr(found, field.name) for field in fields(found)]
    return [tensor for one in found for tensor in with_gradients(one)] if isinstance(found, (list, tuple)) else []


def cast_to(dtype: Any) -> Callable[[Tensor], Tensor]:
    """A function that casts floating-point tensors."""
    return lambda x: x.to(dtype) if x.is_floating_point() and x.dtype != dtype else x
