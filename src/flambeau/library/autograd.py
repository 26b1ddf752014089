"""Derivatives of operators that programs define.

`register_autograd` gives backward(ctx, *grads) and setup_context(ctx, inputs, output). `GeneratedBackwardFor_...` is the node: its forward calls the operator
once more, below autograd. Lists of tensors go in and come out as lists; the node knows them as so many tensors (`supports_tensorlist`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from flambeau import modes
from flambeau.autograd.function import Function
from flambeau.batching import trees
from flambeau.library.guards import AutoDispatchBelowAutograd
from flambeau.operators.overloads import OpOverload
from flambeau.operators.schema import FunctionSchema
from flambeau.tensor import Tensor

__all__ = ["Info", "kernel", "marked", "supports_tensorlist"]


class Info(NamedTuple):
    """What register_autograd was given."""

    backward: Callable | None
    setup_context: Callable | None


def filled(schema: FunctionSchema, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """All arguments, those included that were left out because they are what they would be anyway."""
    positional = [a for a in schema.arguments if not a.kwarg_only]
    missing = [a.default for a in positional[len(args) :]]
    named = {a.name: kwargs.get(a.name, a.default) for a in schema.arguments if a.kwarg_only}
    return (*args, *missing), named


def kernel(overload: OpOverload, info: Info, rule_for_vmap: Callable[[], Callable | None]) -> Callable[..., Any]:
    """What runs for the key Autograd: records a node, if a gradient is wanted, and calls the operator below."""
    nodes: dict[Callable | None, Any] = {}  # by the rule for vmap, which may be given later

    symbolic = is_symbolic_view(overload)

    def autograd_impl(*args: Any, **kwargs: Any) -> Any:
        if symbolic:
            raise RuntimeError(
                "Custom ops that are views do not support SymInt. Say int in the schema. If you need a symbolic size, please file an issue."
            )
        if wants_grad((*args, *kwargs.values())):
            args, kwargs = filled(overload._schema, args, kwargs)
            rule = rule_for_vmap()
            if rule not in nodes:
                nodes[rule] = node(overload, info, rule)
            return nodes[rule].apply(kwargs, *args)
        with AutoDispatchBelowAutograd():
            return overload(*args, **kwargs)

    return autograd_impl


def is_symbolic_view(overload: OpOverload) -> bool:
    """Whether an operator gives views by numbers that may be symbols, which PyTorch refuses when it is called."""
    views = any(r.alias_info is not None and not r.is_write for r in overload._schema.returns)
    return views and any("SymInt" in a.text for a in overload._schema.arguments)


def wants_grad(values: Any) -> bool:
    """Whether a gradient is asked for: recording is on, and a tensor among the arguments requires one (or is mapped over)."""
    from flambeau.library.kernels import tensors_of

    found = list(tensors_of(values))
    if modes.state.levels and any(hasattr(t._array, "level") for t in found):
        return True
    return modes.state.grad and any(t.requires_grad for t in found)


def node(overload: OpOverload, info: Info, rule: Callable | None = None) -> type:
    """The Function whose node is recorded."""

    class Generated(Function):
        generate_vmap_rule = rule is None

        @staticmethod
        def forward(named: dict[str, Any], *args: Any) -> Any:
            with AutoDispatchBelowAutograd():
                return overload(*args, **named)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple, output: Any) -> None:
            named, *args = inputs
            if info.setup_context is None:
                return
            if any(a.kwarg_only for a in overload._schema.arguments):
                info.setup_context(ctx=ctx, inputs=tuple(args), keyword_only_inputs=named, output=output)
            else:
                info.setup_context(ctx=ctx, inputs=tuple(args), output=output)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            if info.backward is None:
                raise RuntimeError(
                    f"Trying to backward through {overload} but no autograd formula was registered. Please use register_autograd to add one."
                )
            ctx.needs_input_grad, whole = ctx.needs_input_grad[1:], ctx.needs_input_grad
            try:
                found = info.backward(ctx, *grads)
            finally:
                ctx.needs_input_grad = whole
            return (None, *_as_many(found if isinstance(found, tuple) else (found,), len(whole) - 1, Generated.__name__))

    if rule is not None:
        Generated.vmap = staticmethod(lambda info, in_dims, named, *args: rule(info, in_dims[1:], *args, **named))  # type: ignore[method-assign]
    Generated.__name__ = Generated.__qualname__ = f"GeneratedBackwardFor_{overload.namespace}_{overload._opname}_{overload._overloadname}"
    return supports_tensorlist(Generated)


# -- lists of tensors ----------------------------------------------------------------------------------------------------------------------


class Place:
    """Where the leaves of a list stand: how many there are, or None for a value that is no list of tensors."""

    def __init__(self, value: Any):
        self.kind = type(value)
        self.length = len(value) if self.kind in (list, tuple) and any(isinstance(v, Tensor) for v in value) else None

    def take(self, leaves: list) -> Any:
        """The value again, from the front of the leaves."""
        if self.length is None:
            return leaves.pop(0)
        return self.kind([leaves.pop(0) for _ in range(self.length)])


class Shape:
    """How arguments or results become leaves, and back."""

    def __init__(self, values: tuple):
        self.places = [Place(v) for v in values]
        self.has_lists = any(p.length is not None for p in self.places)

    def leaves(self, values: tuple) -> list:
        """The values, with lists laid out."""
        found: list[Any] = []
        for place, value in zip(self.places, values, strict=True):
            found.extend(value) if place.length is not None else found.append(value)
        return found

    def values(self, leaves: Any) -> tuple:
        """The values again."""
        left = list(leaves)
        return tuple([place.take(left) for place in self.places])


def supports_tensorlist(cls: Any) -> Any:
    """A decorator: `apply` of this Function takes lists of tensors and returns them, and backward is given and gives lists in their places."""
    own_forward, own_backward, own_setup = cls.forward, cls.backward, cls.setup_context
    apart = own_setup is not Function.setup_context

    class Call:
        """What one call of apply remembers."""

        inputs: Shape
        outputs: Shape
        single: bool
        output: Any

    def run(call: Any, ctx: Any, leaves: tuple) -> Any:
        args = call.inputs.values(leaves)
        result = own_forward(*args) if apart else _of_values(ctx, call, own_forward, args)
        call.single = not isinstance(result, tuple)
        results = (result,) if call.single else result
        call.outputs = Shape(results)
        call.outputs_kind = [isinstance(r, list) for r in results]
        flat = tuple(call.outputs.leaves(results))
        return flat[0] if call.single and not call.outputs.has_lists else flat

    class Flat(Function):
        generate_vmap_rule = True

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            call = ctx._call
            grads = call.outputs.values(grads)
            found = _of_values(ctx, call, own_backward, grads)
            found = found if isinstance(found, tuple) else (found,)
            return (None, *_laid_out(call.inputs, found, cls.__name__))

    if apart:

        def forward(call: Any, *leaves: Any) -> Any:
            return run(call, None, leaves)

        def setup_context(ctx: Any, inputs: tuple, output: Any) -> None:
            call, *leaves = inputs
            ctx._call = call
            flat = output if isinstance(output, tuple) else (output,)
            results = call.outputs.values(flat)
            own_setup(ctx, call.inputs.values(leaves), results[0] if call.single else results)

        Flat.setup_context = staticmethod(setup_context)  # type: ignore[method-assign]
    else:

        def forward(ctx: Any, call: Any, *leaves: Any) -> Any:  # type: ignore[misc]
            ctx._call = call
            return run(call, ctx, leaves)

    if cls.vmap is not Function.vmap:
        Flat.vmap = staticmethod(_mapped(cls.vmap))  # type: ignore[method-assign]
    Flat.forward = staticmethod(forward)  # type: ignore[method-assign]
    Flat.__name__ = Flat.__qualname__ = cls.__name__
    Flat.generate_vmap_rule = cls.generate_vmap_rule

    def apply(*args: Any) -> Any:
        call: Any = Call()
        call.inputs = Shape(args)
        found = Flat.apply(call, *call.inputs.leaves(args))
        flat = found if isinstance(found, tuple) else (found,)
        results = call.outputs.values(flat)
        return results[0] if call.single else results

    cls.apply = staticmethod(apply)
    cls.forward, cls.backward = staticmethod(_not_directly("forward")), staticmethod(_not_directly("backward"))
    return cls


def _mapped(rule: Callable) -> Callable:
    """An author's batching rule for leaves."""

    def vmap(info: Any, in_dims: tuple, call: Any, *leaves: Any) -> tuple[Any, Any]:
        found = rule(info, call.inputs.values(in_dims[1:]), *call.inputs.values(leaves))
        if not isinstance(found, tuple) or len(found) != 2:
            raise RuntimeError(f"a vmap rule returns two things, (results, out_dims), found {type(found).__name__}")
        result, out_dims = found
        call.single = not isinstance(result, tuple)
        call.outputs = Shape((result,) if call.single else result)
        flat, shape = trees.flatten(result)
        places = trees.spread(out_dims, shape)
        if places is None:
            raise RuntimeError(f"a vmap rule gave out_dims {out_dims}, which do not fit its outputs, {shape}")
        return (flat[0], places[0]) if shape is trees.LEAF else (tuple(flat), tuple(places))

    return vmap


def _of_values(ctx: Any, call: Any, function: Callable, args: tuple) -> Any:
    """function(ctx, *args), which sees in ctx.needs_input_grad what it knows: one entry for each argument, a list for a list."""
    flat = ctx.needs_input_grad
    ctx.needs_input_grad = call.inputs.values(flat[1:])
    try:
        return function(ctx, *args)
    finally:
        ctx.needs_input_grad = flat


def _not_directly(name: str) -> Callable:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f"NYI: calling supports_tensorlist autograd.Function.{name} directly. You should probably be calling .apply instead"
        )

    return refuse


def _laid_out(shape: Shape, found: tuple, name: str) -> list:
    """Gradients for all leaves, from those that an author gave for the arguments."""
    if len(found) != len(shape.places):
        raise RuntimeError(
            f"Expected the return from backward to be of the same structure as the inputs. {name}: {len(found)} gradients for {len(shape.places)} "
            "arguments. Arguments that have none, such as numbers, get None"
        )
    leaves: list[Any] = []
    for place, grad in zip(shape.places, found, strict=True):
        if place.length is None:
            leaves.append(grad)
        elif grad is None:
            leaves.extend([None] * place.length)
        elif not isinstance(grad, list | tuple) or len(grad) != place.length:
            raise RuntimeError(
                f"Expected the return from backward to be of the same structure as the inputs. {name}: the gradient of a list of {place.length} tensors "
                f"is a list of {place.length}, found {grad if not isinstance(grad, Tensor) else 'a tensor'}"
            )
        else:
            leaves.extend(grad)
    return leaves


# -- operators without a derivative --------------------------------------------------------------------------------------------------------


def _as_many(found: tuple, wanted: int, name: str) -> tuple:
    """As many gradients as there are arguments. An author may leave out those at the end that have none, and give None for more than there are."""
    if any(g is not None for g in found[wanted:]):
        raise RuntimeError(
            f"function {name}Backward returned a gradient different than None at position {wanted + 1}, but the corresponding forward input was not a Variable"
        )
    return (*found[:wanted], *[None] * (wanted - len(found)))


class WarnNotImplemented(Function):
    """The result of an operator that nobody gave a derivative: backward through it warns, and gives nothing."""

    @staticmethod
    def forward(ctx: Any, name: str, result: Tensor, *inputs: Tensor) -> Tensor:
        ctx.name = name
        return result.view_as(result)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if fallback_mode == "error":
            raise RuntimeError(f"{ctx.name}: trying to backprop through it, but no autograd kernel was registered to the Autograd key(s)")
        warnings.warn(
            f"{ctx.name}: an autograd kernel was not registered to the Autograd key(s) but we are trying to backprop through it. This may lead to silently "
            "incorrect behavior: no gradient goes on from here. torch.library.register_autograd gives the operator a derivative",
            stacklevel=2,
        )
        return (None,) * len(ctx.needs_input_grad)


fallback_mode = "warn"  # "nothing": results that a kernel did not record are left as they are; "error": backward through them raises


def marked(overload: OpOverload, result: Any, inputs: list[Tensor]) -> Any:
    """The results of a kernel that recorded nothing, so that backward through them warns. What it recorded, and its arguments, are left alone."""
    if fallback_mode == "nothing":
        return result
    known = {id(t) for t in inputs}

    def mark(value: Any) -> Any:
        if (
            isinstance(value, Tensor)
            and id(value) not in known
            and not value.requires_grad
            and (value.is_floating_point() or value.is_complex())
        ):
            return WarnNotImplemented.apply(overload.name(), value, *inputs)
        return value

    if isinstance(result, tuple | list) and not hasattr(result, "_fields"):
        return type(result)([mark(v) for v in result])
    return mark(result)
