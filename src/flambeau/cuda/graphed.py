"""make_graphed_callables: modules and functions whose forward pass and backward pass are CUDA graphs, for programs that are otherwise ordinary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from flambeau import autograd
from flambeau.amp.autocast_mode import is_autocast_cache_enabled, is_autocast_enabled
from flambeau.batching.trees import flatten, leaves_of, unflatten
from flambeau.cuda import streams
from flambeau.cuda.choosing import gpus
from flambeau.nn.modules.module import Module
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import empty_like


def make_graphed_callables(
    callables: Any, sample_args: Any, num_warmup_iters: int = 3, allow_unused_input: bool = False, pool: Any = None
) -> Any:
    """Functions or modules that do what these do, their work on the GPU captured once, forward and backward.

    sample_args   a tuple of tensors, for several callables a tuple of these: of the shapes, dtypes and `requires_grad` that later calls have

    What they are called with is copied to where the graph reads it. Several callables are to be called in the order they are given in, and
    their backward passes run in the opposite order, since they share their memory. A module that changes between `train()` and `eval()` is run the ordinary
    way where it is not as it was captured.
    """
    if is_autocast_enabled("cuda") and is_autocast_cache_enabled():
        raise RuntimeError("make_graphed_callables does not support the autocast caching. Please set `cache_enabled=False`.")
    alone = not isinstance(callables, tuple)
    functions, samples = ((callables,), (sample_args,)) if alone else (callables, sample_args)
    parts = [Part.of(function, args) for function, args in zip(functions, samples, strict=True)]
    _warm_up(parts, num_warmup_iters, allow_unused_input)
    pool = gpus().memory.new_pool(True) if pool is None else pool
    forwards = [_capture_forward(part, pool) for part in parts]
    backwards = [
        _capture_backward(part, made, pool, allow_unused_input) for part, made in reversed(list(zip(parts, forwards, strict=True)))
    ]
    found = [_graphed(*all_of_it) for all_of_it in zip(parts, forwards, reversed(backwards), strict=True)]
    return found[0] if alone else tuple(found)


class Part(NamedTuple):
    """A callable with the tensors its graph will read: those it is called with, then a module's parameters."""

    function: Callable
    args: tuple[Tensor, ...]
    inputs: tuple[Tensor, ...]

    @classmethod
    def of(cls, function: Callable, sample_args: Sequence[Tensor]) -> Part:
        """A callable, after the checks."""
        if isinstance(function, Module):
            if function._backward_hooks or function._forward_hooks or function._forward_pre_hooks:
                raise RuntimeError(
                    "Modules must not have hooks registered at the time they are passed. However, registering hooks on modules after "
                    "passing them through make_graphed_callables is allowed."
                )
            if any(b.requires_grad for b in function.buffers()):
                raise RuntimeError(
                    "In any :class:`~torch.nn.Module` passed to :func:`~make_graphed_callables`, only parameters may be trainable. "
                    "All buffers must have ``requires_grad=False``."
                )
        args = tuple(leaves_of(tuple(sample_args)))
        if not all(isinstance(a, Tensor) for a in args):
            raise TypeError("In the beta API, sample_args for each callable must contain only Tensors. Other types are not allowed.")
        parameters = tuple(function.parameters()) if isinstance(function, Module) else ()
        return cls(function, tuple(sample_args), args + parameters)


class Forward(NamedTuple):
    """The graph of a forward pass, and the tensors it writes."""

    graph: Any
    outputs: tuple[Tensor, ...]
    spec: Any


class Backward(NamedTuple):
    """The graph of a backward pass, the gradients it reads, and those it writes: None for inputs without."""

    graph: Any
    given: tuple[Tensor | None, ...]
    found: tuple[Tensor | None, ...]


def _gradients(part: Part, outputs: Sequence[Tensor], given: Sequence[Tensor | None], unused: bool) -> tuple[Tensor | None, ...]:
    """The gradients of the inputs that want one."""
    wanted = [t for t in part.inputs if t.requires_grad]
    pairs = [(o, g) for o, g in zip(outputs, given, strict=True) if g is not None]
    if not wanted or not pairs:
        return (None,) * len(part.inputs)
    found = iter(autograd.grad([o for o, _ in pairs], wanted, [g for _, g in pairs], only_inputs=True, allow_unused=unused))
    return tuple([next(found) if t.requires_grad else None for t in part.inputs])


def _wanted(outputs: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
    return tuple([empty_like(o) if o.requires_grad else None for o in outputs])


def _warm_up(parts: Sequence[Part], times: int, unused: bool) -> None:
    gpus().Device().synchronize()
    with streams.StreamContext(streams.Stream()):
        for part in parts:
            for _ in range(times):
                outputs = tuple(leaves_of(part.function(*part.args)))
                _gradients(part, outputs, _wanted(outputs), unused)
    gpus().Device().synchronize()


def _capture_forward(part: Part, pool: Any) -> Forward:
    from flambeau.cuda.graphs import CUDAGraph, graph

    made = CUDAGraph()
    with graph(made, pool=pool):
        whole = part.function(*part.args)
    outputs, spec = flatten(whole)
    return Forward(made, tuple(outputs), spec)


def _capture_backward(part: Part, forward: Forward, pool: Any, unused: bool) -> Backward:
    from flambeau.cuda.graphs import CUDAGraph, graph

    given = _wanted(forward.outputs)
    made = CUDAGraph()
    if not any(g is not None for g in given):
        return Backward(None, given, (None,) * len(part.inputs))
    with graph(made, pool=pool):
        found = _gradients(part, forward.outputs, given, unused)
    return Backward(made, given, found)


def _graphed(part: Part, forward: Forward, backward: Backward) -> Any:
    class Graphed(autograd.Function):
        """Copies what it is given to where the graphs read it, and replays them."""

        @staticmethod
        def forward(ctx: Any, *inputs: Tensor) -> Any:
            for static, given in zip(part.inputs, inputs, strict=True):
                if static.data_ptr() != given.data_ptr():
                    static.copy_(given)
            forward.graph.replay()
            return tuple([o.detach() for o in forward.outputs])

        @staticmethod
        @autograd.function.once_differentiable
        def backward(ctx: Any, *grads: Tensor) -> Any:
            for static, given in zip(backward.given, grads, strict=True):
                if static is not None and static.data_ptr() != given.data_ptr():
                    static.copy_(given)
            if backward.graph is not None:
                backward.graph.replay()
            return tuple([None if g is None else g.detach() for g in backward.found])

    parameters = part.inputs[len(leaves_of(part.args)) :]

    def run(*args: Any) -> Any:
        """What the callable does, by its graphs."""
        outputs = Graphed.apply(*leaves_of(args), *parameters)
        return unflatten(list(outputs), forward.spec)

    if not isinstance(part.function, Module):
        return run
    module, ordinary, training = part.function, part.function.forward, part.function.training

    def run_as_captured(*args: Any, **kwargs: Any) -> Any:
        """The module's forward pass: by its graphs where it is as it was captured."""
        return ordinary(*args, **kwargs) if kwargs or module.training != training else run(*args)

    module.forward = run_as_captured
    return module
