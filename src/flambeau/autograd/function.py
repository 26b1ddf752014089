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
import warnings
from typing import Any

from flambeau import modes
from flambeau.autograd import reentrance
from flambeau.eager import inplace, record, saved
from flambeau.eager.arguments import tensors_in
from flambeau.eager.views import over
from flambeau.interpreters import stack
from flambeau.kernels import arrays
from flambeau.tensor import Tensor, wrap
from flambeau.tensor.node import FREED, LEAF, Node, freed_error
from flambeau.tracing.kinds import FUNCTION


class Function:
    """Base of user-defined operations: subclass it with static `forward` and `backward`, and call `.apply(...)`."""

    generate_vmap_rule = False
    boxed_grads_call = False  # backward takes its gradients as one list, from which it can drop them while it runs
    clear_saved_tensors_on_access = False  # the node lets go of what was saved as soon as `ctx.saved_tensors` has been read

    def __init__(self, *args, **kwargs):
        name = type(self).__name__
        words = f"{name} should not be instantiated: its methods are static, and {name}.apply(...) calls them"
        warnings.warn(words, DeprecationWarning, stacklevel=2)

    def __call__(self, *args, **kwargs):
        raise RuntimeError(
            "Legacy autograd function with non-static forward method is deprecated: make it static, and call the class's .apply(...)"
        )

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """The result. Takes (ctx, *args), or just the arguments if `setup_context` is defined."""
        raise NotImplementedError("a custom autograd.Function must implement the forward method.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Save what backward needs, where forward itself has no ctx."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """One gradient per argument of forward."""
        raise NotImplementedError("a custom autograd.Function must implement either the backward or the vjp method.")

    vjp = backward

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """Forward-mode derivative."""
        raise NotImplementedError("a custom autograd.Function must implement the jvp function for forward mode.")

    @staticmethod
    def vmap(info: Any, in_dims: tuple, *args: Any) -> Any:
        """The batching rule: (outputs, out_dims) of arguments whose samples lie along in_dims; info has batch_size and randomness."""
        raise NotImplementedError("autograd.Function: vmap needs its vmap staticmethod, or generate_vmap_rule=True.")

    @classmethod
    def apply(cls, *args, **kwargs):
        """Run forward and record backward."""
        if modes.special and modes.state.levels and any(hasattr(a._array, "as_tensor") for a in tensors_in(args)):
            from flambeau.autograd import batched_function

            return batched_function.apply(cls, args, kwargs)
        recorder = stack.at(stack.PROFILE) if modes.special else None
        if recorder is not None:
            with recorder.range(cls.__name__, FUNCTION):
                return cls._apply(args, kwargs)
        return cls._apply(args, kwargs)

    @classmethod
    def _apply(cls, args: tuple, kwargs: dict):
        split = cls.setup_context is not Function.setup_context
        if split:
            args, kwargs = _all_arguments(cls.forward, args, kwargs)
        elif modes.state.transforms:
            raise needs_setup_context(cls)
        node = cls._new_node(args)
        pairs = None
        if modes.state.carried is not None and modes.state.carried.duals:
            from flambeau.autograd import forward_ad

            pairs = forward_ad.unpack_duals([a for a in args if isinstance(a, Tensor)])  # before forward, which may write to them
        recording = modes.state.grad and any(node.needs_input_grad)
        with modes.no_grad():
            if split:
                output = cls.forward(*args, **kwargs)
                cls.setup_context(node, args, output)
                _check_saved(node, args, output)
            else:
                output = cls.forward(node, *args, **kwargs)
        single = not isinstance(output, (tuple, list))
        finished = _Results(node, args, [output] if single else list(output), recording).finish()
        if pairs is not None:
            forward_ad.push(node, args, pairs, finished)
        if single:
            return finished[0]
        return type(output)(*finished) if hasattr(output, "_fields") else type(output)(finished)

    @classmethod
    def _new_node(cls, args: tuple) -> FunctionNode:
        node = cls._node_class()()
        node.is_tensor_input = tuple([isinstance(a, Tensor) for a in args])
        node.edges = [saved.edge_of(a) for a in args]
        node.needs_input_grad = tuple([edge is not None for edge in node.edges])
        if cls.boxed_grads_call:
            node._hooks()  # with hooks, if only in name: then the engine hands over a list and keeps no gradient itself
        if modes.state.carried is not None:
            node.given = tuple([a.detach() if isinstance(a, Tensor) and a._is_float() else None for a in args])
        return node

    @classmethod
    def _node_class(cls) -> type[FunctionNode]:
        found = cls.__dict__.get("_node_type")
        if found is None:
            found = type(cls.__name__ + "Backward", (FunctionNode,), {"function": cls, "__module__": "torch.autograd.function"})
            cls._node_type = found
        return found


def needs_setup_context(cls: type[Function]) -> RuntimeError:
    """For functions of torch.func, which run forward and what goes with it at different times."""
    return RuntimeError(
        f"{cls.__name__} must override the setup_context staticmethod to be used by vmap, grad, jvp and the like: its forward "
        "then takes no ctx"
    )


def _check_saved(node: FunctionNode, args: tuple, output: Any) -> None:
    """RuntimeError if setup_context has saved an input that forward returned: the output is another tensor, and either could be meant."""
    results = {id(o) for o in (output if isinstance(output, (tuple, list)) else (output,)) if isinstance(o, Tensor)}
    both = {id(a) for a in args if isinstance(a, Tensor)} & results - {id(t) for t in node.dirty_tensors}
    if any(id(t) in both for t in (*node.to_save, *node.saved_for_forward)):
        raise RuntimeError(
            "An input that has been returned as-is is saved for backward, too: with setup_context this is not supported. "
            "Return and save a view of it, x.view_as(x), or save it in forward itself"
        )


def _all_arguments(forward: Any, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """The arguments as setup_context and backward count them: those by name in their places, defaults where none was given."""
    if not kwargs and not getattr(forward, "__defaults__", None):
        return args, kwargs
    import inspect

    bound = inspect.signature(forward).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.args, bound.kwargs


class FunctionCtx:
    """What `forward` can say to `backward`."""

    needs_input_grad: tuple[bool, ...] = ()
    to_save: tuple = ()
    dirty_tensors: tuple = ()
    non_differentiable: tuple = ()
    materialize_grads = True
    _materialize_non_diff_grads = True  # PyTorch's name for whether outputs marked as not differentiable get zeros, too
    saved_for_forward: tuple = ()

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for backward. Inputs and outputs kept this way are checked for in-place changes; call it once."""
        for t in tensors:
            if t is not None and not isinstance(t, Tensor):
                raise TypeError(f"save_for_backward keeps tensors, found {type(t).__name__}. Other things can be attributes of ctx")
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
    """The node of a `Function`, which is also its ctx. Its outputs are numbered as forward returned them."""

    function: type[Function]
    looks: tuple = ()  # per output (shape, numpy dtype, device), None for what is no tensor
    given: tuple = ()  # for a `jvp`: the arguments that can have a tangent, None for the others
    constant: tuple = ()  # the outputs that have no derivative
    writes = False  # whether it changes its inputs in place
    in_jvp = False
    pushed = False  # whether its outputs have their tangents, so that the search for them ends here
    runs_without_grad = True

    @property
    def saved_tensors(self) -> tuple:
        """What `save_for_backward` kept."""
        if self.in_jvp:
            return self.saved_for_forward
        if self.saved is FREED:
            raise freed_error()
        if self.saved is CLEARED:
            raise RuntimeError("saved_tensors can only be accessed once, as clear_saved_tensors_on_access is set. Keep what it returned.")
        if self.saved is None:
            return tuple(self.to_save)
        found = tuple([saved.unpack(entry, self) for entry in self.saved])
        if self.function.clear_saved_tensors_on_access:
            self.saved = CLEARED
        return found

    @property
    def saved_variables(self) -> tuple:
        """The old name of saved_tensors."""
        warnings.warn("'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning, stacklevel=2)
        return self.saved_tensors

    def __repr__(self) -> str:
        return f"<torch.autograd.function.{type(self).__name__} object at {hex(id(self))}>"

    @property
    def _raw_saved_tensors(self) -> tuple:
        return tuple([saved.SavedTensor(self, i) for i in range(len(self.saved or ()))])

    def apply(self, *grads) -> list:
        return self.apply_boxed(list(grads))

    def apply_boxed(self, grads: list) -> list:
        cls = self.function
        if modes.state.searching and cls.jvp is not Function.jvp:
            return [None] * len(self.edges) if self.pushed else _transposed_jvp(self, grads)
        if self.saved is FREED:
            raise freed_error()
        if self.materialize_grads:
            looks = self.looks
            if not self._materialize_non_diff_grads:
                looks = tuple([None if nr in self.constant else look for nr, look in enumerate(looks)])
            grads[:] = [_zeros(look) if g is None and look is not None else g for g, look in zip(grads, looks, strict=True)]
        if cls.backward is not Function.backward and cls.vjp is not Function.vjp:
            raise RuntimeError("Implementing both 'backward' and 'vjp' leaves open which is meant. Implement one of them.")
        backward = cls.backward if cls.vjp is Function.vjp else cls.vjp
        found = reentrance.run(backward, (self, grads) if cls.boxed_grads_call else (self, *grads))
        return self._checked(list(found) if isinstance(found, (tuple, list)) else [found])

    def push(self, *tangents: Tensor | None) -> list:
        """Tangents of the outputs by the author's jvp."""
        if self.materialize_grads:
            pairs = zip(tangents, self.given, strict=True)
            tangents = tuple([x.new_zeros(x.shape) if t is None and x is not None else t for t, x in pairs])
        self.in_jvp = True
        try:
            found = self.function.jvp(self, *tangents)
        finally:
            self.in_jvp = False
        results = list(found) if isinstance(found, (tuple, list)) else [found]
        if len(results) != len(self.looks):
            counts = f"(expected {len(self.looks)}, got {len(results)})"
            raise RuntimeError(f"{self.function.__name__}.jvp returned an incorrect number of forward gradients {counts}: one per output")
        for i in self.constant:
            if results[i] is not None:
                what = f"a forward gradient at position {i}, but the output there is not differentiable"
                raise RuntimeError(f"{self.function.__name__}.jvp returned {what}. You should return None at that position instead")
        return results

    def _checked(self, found: list) -> list:
        expected = len(self.edges)
        if len(found) > expected and all(g is None for g in found[expected:]):
            found = found[:expected]
        if len(found) != expected:
            counts = f"(expected {expected}, got {len(found)})"
            raise RuntimeError(f"{type(self).__name__} returned an incorrect number of gradients {counts}: one per argument of forward")
        for i, g in enumerate(found):
            if g is not None and not isinstance(g, Tensor):
                raise RuntimeError(f"expected Variable or None (got {type(g).__name__}) as gradient {i} from {type(self).__name__}")
            if g is not None and not self.is_tensor_input[i]:
                raise RuntimeError(f"{type(self).__name__} returned a gradient different from None at position {i + 1}, for no tensor")
        return found

    @property
    def hidden(self) -> frozenset[int]:
        """Arguments that are no tensors."""
        return frozenset(i for i, tensor in enumerate(self.is_tensor_input) if not tensor)

    def release(self) -> None:
        self.saved = FREED if self.saved else None
        self.to_save = ()


def _zeros(look: tuple) -> Tensor:
    return wrap(arrays.zeros(*look))


CLEARED: Any = object()  # stands for what was saved, after it has been read with clear_saved_tensors_on_access


class TransposedJvp(Node):
    """What is left of a Function in the search for tangents: w^T J, whose derivative by w is the author's jvp. See tangents.py."""

    owner: FunctionNode

    def apply(self, *tangents) -> list:
        if self.owner.writes:  # so does the author's jvp with the tangents, which are others' as well
            tangents = tuple([None if t is None else t.clone() for t in tangents])
        return self.owner.push(*tangents)


def _transposed_jvp(node: FunctionNode, weights: list) -> list:
    """w^T J for each input of the function. The search sends zeros through the graph: what counts is how they depend on each other."""
    some = next(w for w in weights if w is not None)
    rows = [
        None if x is None or edge is None else some.new_zeros(x.shape, dtype=x.dtype)
        for x, edge in zip(node.given, node.edges, strict=True)
    ]
    found = TransposedJvp()
    found.owner = node
    record.start(found, [saved.edge_of(w) for w in weights], [None if r is None else r._array for r in rows])
    for nr, row in enumerate(rows):
        if row is not None:
            record.attach(row, found, nr)
    return rows


class _Results:
    """Gives what forward returned its history."""

    def __init__(self, node: FunctionNode, args: tuple, outputs: list, recording: bool):
        self.node, self.outputs, self.recording = node, outputs, recording
        self.inputs = {id(a): i for i, a in enumerate(args) if isinstance(a, Tensor)}
        self.dirty = {id(t) for t in node.dirty_tensors}
        self.frozen = {id(t) for t in node.non_differentiable}

    def finish(self) -> list:
        if self.recording:
            self._check_dirty()
        # First what is returned as it came in gets a face of its own; then versions are counted; then history is attached.
        finished = [self._presentable(o) if isinstance(o, Tensor) else o for o in self.outputs]
        for t in self.node.dirty_tensors:
            t._bump()
        if self.recording:
            self._attach(finished)
        elif modes.state.grad:
            for o in finished:
                if isinstance(o, Tensor) and o._base is not None and id(o) not in self.inputs:
                    o._view_mode = "function"  # made inside forward, where nothing was recorded
        self.node.writes = bool(self.node.dirty_tensors)
        self.node.dirty_tensors = self.node.non_differentiable = ()  # a node that held its results would be a cycle
        return finished

    def _check_dirty(self) -> None:
        for t in self.node.dirty_tensors:
            if id(t) not in {id(o) for o in self.outputs}:
                raise RuntimeError("Some elements marked as dirty during the forward method were not returned as output.")
            if id(t) not in self.inputs:
                self._refuse_other(t)
            inplace.check_writable(type(self.node).__name__, t, (t,))

    def _refuse_other(self, t: Tensor) -> None:
        if t._base is not None:
            raise RuntimeError(
                f"{self.node.function.__name__}: mark_dirty was given, or received a tensor that was not an input. Only "
                "inputs can be marked."
            )
        warnings.warn("ctx.mark_dirty() is for inputs: other tensors need no mark", stacklevel=6)

    def _presentable(self, o: Tensor) -> Tensor:
        """An input that was not written to is returned as a view of itself, so that it can have another history."""
        if id(o) not in self.inputs or id(o) in self.dirty:
            return o
        if not self.recording:
            return o if not o.requires_grad else o.detach()
        view = over(o, o._array)
        view._view_mode = "function"
        if id(o) in self.frozen:
            self.frozen.add(id(view))
        return view

    def _attach(self, finished: list) -> None:
        node = self.node
        tensors = [o if isinstance(o, Tensor) else None for o in finished]
        node.looks = tuple([None if t is None else (t._array.shape, t._array.dtype, t.device) for t in tensors])
        node.constant = tuple([nr for nr, t in enumerate(tensors) if t is None or id(t) in self.frozen or not t._is_float()])
        record.start(node, node.edges, [None if t is None else t._array for t in tensors])
        self._save(finished)
        for nr, o in enumerate(tensors):
            if o is not None and (id(o) in self.frozen or not o._is_float()):
                if o._base is None or o._view_mode == "function":
                    o._node, o._needs, o._base = None, False, None
            elif o is not None:
                self._attach_one(o, nr)

    def _attach_one(self, o: Tensor, nr: int) -> None:
        if id(o) in self.dirty:
            if o._base is not None and self.node.n_outputs > 1:
                raise RuntimeError(
                    "If your Function modifies inplace an input that is a view of another Tensor, it cannot return more than one Tensor."
                )
            inplace.rewrite(o, lambda result: record.attach(result, self.node, nr), position=self.inputs.get(id(o), 0))
            return
        if o._base is not None:
            o._view_mode = "function"  # a view made inside forward: writing to it would bypass the custom backward
            o._stamp = o._storage.version
        record.attach(o, self.node, nr)

    def _save(self, finished: list) -> None:
        """What `save_for_backward` was given: results by their number, the rest as operands."""
        numbers = {id(o): nr for nr, o in enumerate(finished) if isinstance(o, Tensor)}
        node = self.node
        node.saved = [
            saved.save_result(t, numbers[id(t)]) if id(t) in numbers and id(t) not in self.frozen and t._is_float() else saved.save(t)
            for t in node.to_save
        ]
        node.to_save = ()


# -- functions that can be differentiated once -----------------------------------------------------------------------


def once_differentiable(fn):
    """Decorates a `backward` whose result cannot be differentiated again: trying to is an error instead of a wrong result."""

    @functools.wraps(fn)
    def wrapper(ctx, *args):
        with modes.no_grad():
            outputs = fn(ctx, *args)
        if not modes.state.grad or not any(isinstance(a, Tensor) and a.requires_grad for a in args):
            return outputs
        marked = _refuse_second(outputs if isinstance(outputs, tuple) else (outputs,))
        return marked if isinstance(outputs, tuple) else marked[0]

    return wrapper


class Error(Node):
    """The history of what cannot be differentiated again."""

    def apply(self, *grads):
        raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")


def _refuse_second(outputs: tuple) -> tuple:
    """The same numbers with a history that is an error: of leaves, so that there is something to go back to."""
    found = tuple([o.detach() if isinstance(o, Tensor) and o._is_float() else None for o in outputs])
    node = Error()
    edges = [None if o is None else (o.detach().requires_grad_(), LEAF) for o in found]
    record.start(node, edges, [None if o is None else o._array for o in found])
    for nr, o in enumerate(found):
        if o is not None:
            record.attach(o, node, nr)
    return tuple([given if o is None else o for given, o in zip(outputs, found, strict=True)])


# -- old names ---------------------------------------------------------------------------------------------------------


class InplaceFunction(Function):
    """Kept for old programs: a Function that may work in place."""


BackwardCFunction = FunctionNode


def __getattr__(name: str) -> Any:
    if name == "NestedIOFunction":  # which is made of these
        from flambeau.autograd import nested_function

        return nested_function.NestedIOFunction
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
