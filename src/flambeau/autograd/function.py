"""`Function`: an operation of the user's own, with its derivative.

    class Exp(Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, grad):
            (y,) = ctx.saved_tensors
            return grad * y

`ctx` is the node itself: what `forward` leaves on it, `backward` finds, and so does anyone who looks at `y.grad_fn`.
"""

from __future__ import annotations

import functools
from typing import Any

from flambeau.autograd import modes
from flambeau.autograd.node import FREED, Node, freed_error
from flambeau.eager import inplace, record
from flambeau.tensor import Tensor


class FunctionCtx:
    """What `forward` can say to `backward`."""

    needs_input_grad: tuple[bool, ...] = ()
    to_save: tuple = ()
    dirty_tensors: tuple = ()
    non_differentiable: tuple = ()
    materialize_grads = True

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for backward. Inputs and outputs kept this way are checked for in-place changes; call it once."""
        for t in tensors:
            if t is not None and not isinstance(t, Tensor):
                raise TypeError(f"save_for_backward can only save variables, but argument is of type {type(t).__name__}")
        self.to_save = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for a `jvp` (forward mode)."""
        self.saved_for_forward = tensors

    def mark_dirty(self, *args: Tensor) -> None:
        """Say which inputs `forward` has changed in place; they must be among its outputs."""
        self.dirty_tensors = args

    def mark_non_differentiable(self, *args: Tensor) -> None:
        """Say which outputs have no gradient, such as indices."""
        self.non_differentiable = args

    def set_materialize_grads(self, value: bool) -> None:
        """Whether an output without a gradient gives `backward` zeros (the default) or None."""
        self.materialize_grads = value

    def mark_shared_storage(self, *pairs) -> None:
        """Nothing to do: views find their storage by themselves."""


class FunctionNode(FunctionCtx, Node):
    """The node of a `Function`, which is also its ctx."""

    function: type[Function]

    @property
    def saved_tensors(self) -> tuple:
        """What `save_for_backward` kept."""
        if self.saved is FREED:
            raise freed_error()
        if self.saved is None:
            return tuple(self.to_save)
        return tuple(record.unpack(entry, self) for entry in self.saved)

    saved_variables = saved_tensors

    def apply(self, *grads):
        if self.saved is FREED:
            raise freed_error()
        if self.materialize_grads:
            grads = tuple(g if g is not None else self._zeros(i) for i, g in enumerate(grads))
        cls = self.function
        found = (cls.vjp if cls.backward is Function.backward and cls.vjp is not Function.vjp else cls.backward)(self, *self._all(grads))
        found = found if isinstance(found, tuple) else (found,)
        return self._checked(found)

    def _all(self, grads: tuple) -> tuple:
        """Gradients for every output of forward, those without one as None."""
        by_position = dict(zip(self.positions, grads, strict=True))
        return tuple(by_position.get(i, self.blanks.get(i)) for i in range(self.n_returned))

    def _zeros(self, i: int) -> Tensor:
        shape, dtype = (self.shape, self.numpy_dtype) if self.n_outputs == 1 else (self.shape[i], self.numpy_dtype[i])
        from flambeau import dtypes, factories

        return factories.zeros(shape, dtype=dtypes.OF_NUMPY[dtype], device=self.device)

    def _checked(self, found: tuple) -> tuple:
        expected = len(self.edges)
        if len(found) > expected and all(g is None for g in found[expected:]):
            found = found[:expected]
        if len(found) != expected:
            raise RuntimeError(
                f"function {self.name()} returned an incorrect number of gradients (expected {expected}, got {len(found)}): backward must "
                "return one per argument of forward, None for those that are no tensors"
            )
        for i, (g, edge) in enumerate(zip(found, self.edges, strict=True)):
            if g is not None and not isinstance(g, Tensor):
                raise TypeError(f"function {self.name()} returned a gradient of type {type(g).__name__} at position {i}, expected a Tensor or None")
            if g is not None and edge is None and i < len(self.needs_input_grad) and not self.is_tensor_input[i]:
                raise RuntimeError(
                    f"function {self.name()} returned a gradient different from None at position {i + 1}, but the corresponding forward input "
                    "was not a Variable"
                )
        return found

    def release(self) -> None:
        self.saved = FREED if self.saved else None
        self.to_save = ()

    def _raw_saved_tensors(self):
        return self.saved


class Function:
    """Base of user-defined operations: subclass it with static `forward` and `backward`, and call `.apply(...)`."""

    generate_vmap_rule = False

    def __init__(self, *args, **kwargs):
        raise RuntimeError(
            f"{type(self).__name__} should not be instantiated. Methods on autograd functions are all static: call "
            f"{type(self).__name__}.apply(...) instead."
        )

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """The result. Takes (ctx, *args), or just the arguments if `setup_context` is defined."""
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Save what backward needs, where forward itself has no ctx."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """One gradient per argument of forward."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with backward mode AD."
        )

    vjp = backward

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """Forward-mode derivative."""
        raise NotImplementedError("You must implement the jvp function for custom autograd.Function to use it with forward mode AD.")

    @classmethod
    def apply(cls, *args, **kwargs):
        """Run forward and record backward."""
        node = cls._node_class()()
        node.is_tensor_input = tuple(isinstance(a, Tensor) for a in args)
        node.needs_input_grad = tuple(isinstance(a, Tensor) and a.requires_grad for a in args)
        recording = modes.state.grad and any(node.needs_input_grad)
        edges = tuple(a._edge() if needed else None for a, needed in zip(args, node.needs_input_grad, strict=True))
        with modes.no_grad():
            if cls.setup_context is Function.setup_context:
                output = cls.forward(node, *args, **kwargs)
            else:
                output = cls.forward(*args, **kwargs)
                cls.setup_context(node, args, output)
        return _finish(node, args, edges, output, recording)

    @classmethod
    def _node_class(cls) -> type[FunctionNode]:
        found = cls.__dict__.get("_node_type")
        if found is None:
            found = type(cls.__name__ + "Backward", (FunctionNode,), {"function": cls, "__module__": cls.__module__})
            cls._node_type = found
        return found


def _finish(node: FunctionNode, args, edges, output, recording: bool):
    """Outputs with history. An input returned as it is becomes a view, unless it was changed in place."""
    single = not isinstance(output, (tuple, list))
    outputs = [output] if single else list(output)
    dirty = {id(t) for t in node.dirty_tensors}
    frozen = {id(t) for t in node.non_differentiable}
    inputs = {id(a) for a in args if isinstance(a, Tensor)}
    finished = []
    for o in outputs:
        if isinstance(o, Tensor) and id(o) in inputs and id(o) not in dirty:
            with modes.no_grad():
                fresh = o.view_as(o)
            fresh._base, fresh._needs, fresh._node, fresh._view_mode = None, False, None, None
            if id(o) in frozen:
                frozen.add(id(fresh))
            finished.append(fresh)
        else:
            finished.append(o)
    for t in node.dirty_tensors:
        if recording:
            inplace.check_writable(node.name(), t)
        t._bump()
    if recording:
        _attach(node, edges, finished, outputs, frozen, dirty)
    return finished[0] if single else type(output)(*finished) if hasattr(output, "_fields") else tuple(finished)


def _attach(node: FunctionNode, edges, finished, originals, frozen, dirty) -> None:
    chosen = [i for i, o in enumerate(finished) if isinstance(o, Tensor) and id(o) not in frozen and o._is_float()]
    node.n_returned = len(finished)
    node.positions = chosen
    node.blanks = {}
    if chosen:
        record.start(node, (), [finished[i]._array for i in chosen])
        node.device = finished[chosen[0]].device
    node.edges = edges
    numbers = {id(finished[i]): nr for nr, i in enumerate(chosen)} | {id(originals[i]): nr for nr, i in enumerate(chosen)}
    aliases = {id(originals[i]): finished[i] for i in chosen if originals[i] is not finished[i]}
    node.saved = [
        record.save_result(t, numbers[id(t)]) if t is not None and id(t) in numbers and id(t) not in aliases else record.save(t)
        for t in node.to_save
    ]
    node.to_save = ()
    for nr, i in enumerate(chosen):
        o = finished[i]
        if id(o) in dirty and o._base is not None:
            raise NotImplementedError("a custom Function that changes a view in place is not supported: clone the view first")
        record.attach(o, node, nr)


def once_differentiable(fn):
    """Decorates a `backward` whose result cannot be differentiated again: trying to is an error instead of a wrong result."""

    @functools.wraps(fn)
    def wrapper(ctx, *args):
        with modes.no_grad():
            outputs = fn(ctx, *args)
        if not modes.state.grad or not any(isinstance(a, Tensor) and a.requires_grad for a in args):
            return outputs
        as_tuple = outputs if isinstance(outputs, tuple) else (outputs,)
        marked = tuple(o if o is None else _refuse_second(o) for o in as_tuple)
        return marked if isinstance(outputs, tuple) else marked[0]

    return wrapper


class _Refusal(Node):
    def apply(self, *grads):
        raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")


def _refuse_second(tensor: Tensor) -> Tensor:
    marked = tensor.detach()
    node = _Refusal()
    record.start(node, (), [marked._array])
    record.attach(marked, node)
    return marked


class InplaceFunction(Function):
    """Kept for old programs: a Function that may work in place."""
