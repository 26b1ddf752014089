"""Gradient checkpointing: a part of the forward pass keeps its inputs only, and is run again when backward needs what it computed.

    x = checkpoint(block, x, use_reentrant=False)       # memory of one block instead of all; one more forward pass

Without `use_reentrant`, the tensors that operations save are exchanged for empty `Slot`s. The first slot that backward asks for runs the
function again; what its operations save this time fills the slots, in the same order; and as soon as the last one is filled, the rerun stops.

Note [checkpoints inside checkpoints]: the inputs of a `Region` are saved like any operation's, by a node of its own (`_Inputs`). So if the
region lies in another, these inputs are slots of the outer one, and asking for them runs the outer one again, and so on outward.

The reentrant form is the older one: one node stands for the whole function, and its backward runs forward again and a backward inside it.
"""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, NoReturn

from flambeau import modes, random
from flambeau.amp.autocast_mode import autocast
from flambeau.autograd import api, engine, graph
from flambeau.autograd.function import Function
from flambeau.eager.arguments import tensors_in
from flambeau.eager.autocast import casting
from flambeau.nn import Sequential
from flambeau.overrides import TorchFunctionMode
from flambeau.tensor import Tensor
from flambeau.tensor.making import factories
from flambeau.tensor.memory.host_memory import cuda_is_available
from flambeau.utils.selective_checkpoint import (
    SAC_IGNORED_OPS,
    CheckpointPolicy,
    SelectiveCheckpointContext,
    create_selective_checkpoint_contexts,
)

__all__ = [
    "SAC_IGNORED_OPS", "CheckpointError", "CheckpointFunction", "CheckpointPolicy", "DefaultDeviceType", "GraphExecGroup",
    "SelectiveCheckpointContext", "check_backward_validity", "checkpoint", "checkpoint_sequential", "create_selective_checkpoint_contexts",
    "detach_variable", "get_device_states", "noop_context_fn", "set_checkpoint_debug_enabled", "set_checkpoint_early_stop",
    "set_device_states",
]  # fmt: skip

EXPLICIT = """the use_reentrant parameter should be passed explicitly. use_reentrant=False is recommended; use_reentrant=True keeps what is
done now without it. The first saves the inputs of the function and works with autograd.grad and nested containers, the second does not."""


class CheckpointError(RuntimeError):
    """The function did not compute the same again."""


def noop_context_fn() -> tuple[contextlib.AbstractContextManager, contextlib.AbstractContextManager]:
    """Nothing around forward, and nothing around its rerun."""
    return contextlib.nullcontext(), contextlib.nullcontext()


def checkpoint(
    function: Callable, *args: Any, use_reentrant: bool | None = None, context_fn: Callable[[], tuple] = noop_context_fn,
    determinism_check: str = "default", debug: bool = False, early_stop: bool = True, **kwargs: Any,
) -> Any:  # fmt: skip
    """function(*args, **kwargs), which is run again in backward instead of keeping what it computed.

    use_reentrant       False: see above. True: the older form, without keyword arguments and only for `backward()`
    context_fn          () -> (context for forward, context for the rerun)
    determinism_check   "default": shapes, dtypes and devices of what is computed again are compared; "none": they are not
    debug               say in errors which operations ran in forward and in the rerun
    early_stop          stop the rerun when backward has all it needs
    preserve_rng_state  (a keyword, True) draw the same random numbers again, for dropout

    The function must do the same when it is run again: it may draw random numbers, but not change what it depends on.
    """
    if use_reentrant is None:
        warnings.warn(f"torch.utils.checkpoint: {' '.join(EXPLICIT.split())}", UserWarning, stacklevel=2)
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if use_reentrant:
        if kwargs:
            raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
        if context_fn is not noop_context_fn or debug is not False:
            raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
        return CheckpointFunction.apply(function, preserve, *args)
    if determinism_check not in ("default", "none"):
        raise ValueError(f"determinism_check should be one of ['default', 'none'], but got {determinism_check}")
    debug = debug if _settings.debug is None else _settings.debug
    early_stop = early_stop if _settings.early_stop is None else _settings.early_stop
    forward, again = context_fn()
    if not modes.state.grad:
        with forward:
            return function(*args, **kwargs)
    region = Region(function, args, kwargs, again, Surroundings(preserve, args), early_stop, determinism_check == "default")
    region.log = Log() if debug else None
    with graph.saved_tensors_hooks(region.pack, region.unpack), forward, region.log or contextlib.nullcontext():
        found = function(*args, **kwargs)
    region.complete = True
    return found


def checkpoint_sequential(
    functions: Sequential | Sequence[Callable], segments: int, input: Tensor, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """The functions one after the other, cut into `segments`, all of which but the last are checkpointed."""
    if use_reentrant is None:
        warnings.warn(f"torch.utils.checkpoint.checkpoint_sequential: {' '.join(EXPLICIT.split())}", UserWarning, stacklevel=2)
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    steps = list(functions.children()) if isinstance(functions, Sequential) else list(functions)
    size = len(steps) // segments
    end = 0
    for start in range(0, size * (segments - 1), size):
        end = start + size
        input = checkpoint(_chain(steps[start:end]), input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
    return _chain(steps[end:])(input)


def _chain(steps: Sequence[Callable]) -> Callable:
    def forward(input):
        for step in steps:
            input = step(input)
        return input

    return forward


# -- what a function sees besides its arguments ----------------------------------------------------------------------


class Surroundings:
    """The random state and the autocast settings of forward, for the rerun."""

    def __init__(self, preserve_rng_state: bool, args: Iterable):
        self.autocast = [
            (device, casting().dtype.get(device), enabled, casting().cache_enabled)
            for device, enabled in casting().enabled.items()
            if enabled
        ]
        self.off = [device for device in ("cpu", "cuda") if not casting().enabled.get(device)]
        self.rng = (random.get_rng_state(), *get_device_states(*args)) if preserve_rng_state else None

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """The same once more; afterwards all is as it was."""
        with contextlib.ExitStack() as stack:
            if self.rng is not None:
                state, devices, states = self.rng
                stack.enter_context(random.fork_rng(devices))
                random.set_rng_state(state)
                set_device_states(devices, states)
            for settings in self.autocast:
                stack.enter_context(autocast(*settings))
            for device in self.off:
                if casting().enabled.get(device):
                    stack.enter_context(autocast(device, enabled=False))
            yield


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """The GPUs that tensors among the arguments are on, and the states of their random generators."""
    found = sorted({t.get_device() for t in tensors_in(args) if t.is_cuda})
    if not found:
        return [], []
    from flambeau import cuda

    return found, [cuda.get_rng_state(device) for device in found]


def set_device_states(devices: Sequence[int], states: Sequence[Tensor], *, device_type: str | None = None) -> None:
    """Put the random generators of these GPUs where `get_device_states` found them."""
    if devices:
        from flambeau import cuda

        for device, state in zip(devices, states, strict=True):
            cuda.set_rng_state(state, device)


# -- without reentrance ----------------------------------------------------------------------------------------------


class Slot:
    """Stands for a saved tensor. `found` has it for the backward pass in which it was computed again, until the node
    that saved it has run and lets go of it."""

    __slots__ = ("__weakref__", "found", "number")

    def __init__(self, number: int):
        self.number = number
        self.found: dict[Any, Tensor] = {}


class Region:
    """One call of a checkpointed function."""

    log: Log | None = None

    def __init__(self, function, args, kwargs, context, surroundings: Surroundings, early_stop: bool, checks: bool):
        self.function, self.context, self.surroundings = function, context, surroundings
        self.early_stop, self.checks = early_stop, checks
        self.given = (*args, *kwargs.values())
        self.n_args, self.names = len(args), tuple(kwargs)
        at = [i for i, value in enumerate(self.given) if isinstance(value, Tensor)]
        self.inputs = _Inputs.apply(factories.empty((0,), requires_grad=True), *[self.given[i] for i in at]).grad_fn
        self.needs = {i: self.given[i].requires_grad for i in at}
        self.given = tuple([None if i in self.needs else value for i, value in enumerate(self.given)])
        self.slots: list[weakref.ref[Slot]] = []  # weak: a slot that no node holds any more need not be filled
        self.looks: list[tuple] = []  # (shape, dtype, device) of what they stand for
        self.done: Any = None  # the backward pass, or group of them, that has run it again
        self.complete = False  # whether forward has ended; a backward pass inside of it may come before

    def pack(self, tensor: Tensor) -> Slot:
        """In place of what an operation saves."""
        slot = Slot(len(self.slots))
        self.slots.append(weakref.ref(slot))
        self.looks.append(_look(tensor))
        return slot

    def unpack(self, slot: Slot) -> Tensor:
        """What the slot stands for, computed again if need be."""
        key = GraphExecGroup.current or _this_pass()
        if key != self.done:
            self.done = key
            self.run_again(key)
        if key is not GraphExecGroup.current:
            return slot.found[key]
        try:
            return slot.found.pop(key)
        except KeyError:
            words = "Performing two backward calls that overlap, in need of one saved tensor, within one GraphExecGroup is not supported"
            raise CheckpointError(f"torch.utils.checkpoint: {words}: its backward passes share no node.") from None

    def run_again(self, key: Any) -> None:
        """Fill the slots for one backward pass."""
        rerun = Rerun(self, key)
        log = Log() if self.log is not None else None
        with graph.saved_tensors_hooks(rerun.pack, rerun.unpack), modes.enable_grad(), contextlib.suppress(_Enough):
            args, kwargs = self._arguments()
            with self.surroundings.again(), self.context, log or contextlib.nullcontext():
                self.function(*args, **kwargs)
        if self.complete and rerun.count != len(self.slots):
            self.fail(
                f"A different number of tensors was saved.\nIn the forward: {len(self.slots)}, in the recomputation: {rerun.count}",
                log,
            )
        if self.checks and rerun.different:
            named = "\n".join(
                f"tensor at position {i}:\n    saved       {_said(was)}\n    recomputed  {_said(now)}" for i, was, now in rerun.different
            )
            self.fail(f"Recomputed values for the following tensors have different metadata from the first time.\n{named}", log)

    def _arguments(self) -> tuple[list, dict]:
        """The arguments again, tensors cut off from what made them."""
        values = list(self.given)
        for (i, needs), tensor in zip(self.needs.items(), self.inputs.saved_tensors, strict=True):
            values[i] = tensor.detach().requires_grad_() if needs else tensor
        return values[: self.n_args], dict(zip(self.names, values[self.n_args :], strict=True))

    def fail(self, what: str, log: Log | None) -> NoReturn:
        """CheckpointError, with the operations that ran, if they were noted."""
        if self.log is not None and log is not None:
            what += "\nYou are seeing this error because you passed `debug=True` to checkpoint, or enabled it, which notes what ran."
            what += f"\nOperations in forward: {', '.join(self.log.names)}\nOperations in the rerun: {', '.join(log.names)}"
        else:
            what += "\nDoes the function depend on something that has changed since forward? debug=True shows which operations ran."
        raise CheckpointError(f"torch.utils.checkpoint: {what}")


def _this_pass() -> int:
    """The number of the backward pass that is running. Outside of backward, someone looks at a saved tensor: each look counts as a pass."""
    task = modes.state.task
    return engine.Task.next_number() if task is None else task.number


class _Enough(Exception):
    """All slots are filled."""


class Rerun:
    """What operations save while a region is run again."""

    def __init__(self, region: Region, key: Any):
        self.region, self.key, self.count = region, key, 0
        self.different: list[tuple] = []

    def pack(self, tensor: Tensor) -> Tensor:
        """Keep it in the slot of the same number."""
        region, i = self.region, self.count
        kept = tensor.detach() if tensor.requires_grad else tensor
        if i >= len(region.slots) and not region.complete:
            return kept
        if i >= len(region.slots):
            region.fail("trying to save more tensors during recomputation, beyond those of the first run.", None)
        self.count += 1
        if region.looks[i] != _look(tensor):
            self.different.append((i, region.looks[i], _look(tensor)))
        slot = region.slots[i]()
        if slot is not None:
            slot.found = {self.key: kept}
        if region.early_stop and self.count == len(region.slots):
            raise _Enough
        return kept

    @staticmethod
    def unpack(kept: Tensor) -> Tensor:
        """For a backward pass inside the function itself."""
        return kept


class _Inputs(Function):
    """Saves the inputs of a region as any operation would: see Note [checkpoints inside checkpoints]."""

    @staticmethod
    def forward(anchor, *tensors):
        return factories.empty((0,))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx, grad):
        raise AssertionError("nothing is computed from this node's output")


def _look(tensor: Tensor) -> tuple:
    return tuple(tensor.shape), tensor.dtype, tensor.device


def _said(look: tuple) -> str:
    shape, dtype, device = look
    return f"shape {tuple(shape)}, {dtype}, on {device}"


class Log(TorchFunctionMode):
    """The names of operations that ran, for `debug`."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


# -- with reentrance -------------------------------------------------------------------------------------------------


class CheckpointFunction(Function):
    """The whole function as one node."""

    @staticmethod
    def forward(ctx, run_function: Callable, preserve_rng_state: bool, *args: Any):
        check_backward_validity(args)
        ctx.run_function = run_function
        ctx.surroundings = Surroundings(preserve_rng_state, args)
        ctx.at = [i for i, value in enumerate(args) if isinstance(value, Tensor)]
        ctx.given = [None if isinstance(value, Tensor) else value for value in args]
        ctx.save_for_backward(*[args[i] for i in ctx.at])
        with modes.no_grad():
            return run_function(*args)

    @staticmethod
    def backward(ctx, *grads):
        if modes.state.task is not None and modes.state.task.goal is not None:
            raise RuntimeError(
                "use_reentrant=True: torch.utils.checkpoint is incompatible with .grad() and with `inputs` of "
                ".backward(): its own backward() reaches all parameters. Pass use_reentrant=False, or leave `inputs` out."
            )
        values = list(ctx.given)
        for i, tensor in zip(ctx.at, ctx.saved_tensors, strict=True):
            values[i] = tensor
        inputs = detach_variable(tuple(values))
        with ctx.surroundings.again(), modes.enable_grad():
            found = ctx.run_function(*inputs)
        outputs = (found,) if isinstance(found, Tensor) else found
        pairs = [(o, g) for o, g in zip(outputs, grads, strict=True) if isinstance(o, Tensor) and o.requires_grad]
        if not pairs:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        api.backward([o for o, _ in pairs], [g for _, g in pairs])
        return None, None, *[v.grad if isinstance(v, Tensor) else None for v in inputs]


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The inputs, tensors cut off from what made them."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"Only tuple of tensors is supported, found {type(inputs).__name__}")
    return tuple([v.detach().requires_grad_(v.requires_grad) if isinstance(v, Tensor) else v for v in inputs])


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warn if no input requires a gradient: the reentrant form gives none then, not even to the function's parameters."""
    if not any(isinstance(v, Tensor) and v.requires_grad for v in inputs):
        words = "None of the inputs have requires_grad=True. Gradients will be None"
        warnings.warn(f"{words}, of the function's parameters too: pass use_reentrant=False, or an input that requires grad.", stacklevel=3)


# -- settings --------------------------------------------------------------------------------------------------------


class _Settings:
    early_stop: bool | None = None
    debug: bool | None = None


_settings = _Settings()


@contextlib.contextmanager
def _set(name: str, value: bool | None) -> Iterator[None]:
    before = getattr(_settings, name)
    setattr(_settings, name, value)
    try:
        yield
    finally:
        setattr(_settings, name, before)


def set_checkpoint_early_stop(enable: bool) -> contextlib.AbstractContextManager:
    """Within it, reruns of what is checkpointed here stop early or do not, whatever `checkpoint` is told."""
    return _set("early_stop", enable)


def set_checkpoint_debug_enabled(enabled: bool | None) -> contextlib.AbstractContextManager:
    """Within it, `checkpoint` notes operations for its errors or does not, whatever it is told; None: as it is told."""
    return _set("debug", enabled)


class DefaultDeviceType:
    """The device whose random state is saved where no argument says it."""

    _default_device_type: ClassVar[str | None] = None

    @staticmethod
    def set_device_type(device: str = "cuda") -> None:
        """Choose it."""
        DefaultDeviceType._default_device_type = device

    @staticmethod
    def get_device_type() -> str:
        """What was chosen; the GPU if there is one and nothing was."""
        return DefaultDeviceType._default_device_type or ("cuda" if cuda_is_available() else "cpu")


# -- several backward passes -----------------------------------------------------------------------------------------


class GraphExecGroup:
    """Within it, backward passes over disjoint parts of a graph share one rerun of each checkpointed function."""

    current: ClassVar[GraphExecGroup | None] = None

    def __enter__(self) -> GraphExecGroup:
        if GraphExecGroup.current is not None:
            raise RuntimeError("GraphExecGroup contexts cannot be nested: end one before the next begins")
        GraphExecGroup.current = self
        return self

    def __exit__(self, *exc: Any) -> None:
        GraphExecGroup.current = None
