"""What all transforms by reverse mode share: fresh inputs, a function run on them, gradients out of it.

Note [nested grads and perturbations]: each call of a transform differentiates with respect to inputs of its own: aliases of the arguments
that nobody outside can have seen. Gradients are asked for at those aliases, so what an inner grad differentiates is never confused with
what an outer one does, even if both stand for the same tensor: in grad(lambda x: x * grad(lambda y: x + y)(x)) the inner derivative is 1,
and not 2. An alias of a tensor that is itself being differentiated leads back to it, so the inner result is a function that the outer grad
can differentiate in turn; an alias of any other tensor is a dead end, and a result that leads only to dead ends leaves without a history.
Inside vmap the aliases are wrappers of its level: see Note [levels, wrappers and history] in batching/batched.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau import modes
from flambeau.autograd import api, graph, tangents
from flambeau.autograd.engine import edges_from
from flambeau.batching import trees
from flambeau.batching.batched import Batched, lift, wrapped
from flambeau.ops import OPS
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import ones_like, zeros_like
from flambeau.tensor.node import LEAF

state = modes.state
NO_HOOKS = "torch.func.grad, vjp, jacrev and hessian don't support saved tensor hooks, and so no checkpoints: what they record is theirs"


def fresh(what: str, x: Any) -> Tensor:
    """The input of a new level of differentiation: an alias of x."""
    if not isinstance(x, Tensor):
        raise ValueError(
            f"{what}: Expected all inputs that are differentiated to be Tensors, found {type(x).__name__}. Choose others by argnums"
        )
    if not x._is_float():
        raise RuntimeError(
            f"{what}: only Tensors of floating point and complex dtype can require gradients, found {x.dtype}. Try x.float()"
        )
    if state.levels:
        level = state.levels[-1]
        x = lift(x, level)
        if x._wants():
            return _alias(x)
        new = wrapped(x.value, level, x.batched)
    elif x.requires_grad:
        return _alias(x)
    else:
        new = x.detach()
    new._needs = True
    return new


def _alias(x: Tensor) -> Tensor:
    with modes.enable_grad():  # no_grad outside of a transform is about what leaves it, and not about what it computes
        return OPS["_alias"].call(x)


class Run:
    """A function run on fresh inputs, `forward` if tangents are wanted. `inputs` and `outputs` are flat lists of tensors."""

    def __init__(self, what: str, call: Callable, primals: Any, has_aux: bool, forward: bool = False):
        self.what = what
        leaves, self.in_shape = trees.flatten(primals)
        self.inputs = [fresh(what, x) for x in leaves]
        self.spent = [x for x in self.inputs if x._node is None]
        self.dead = {id(x) for x in self.spent}
        state.transforms += 1
        try:
            with modes.enable_grad(), tangents.carried(self.inputs) if forward else graph.disable_saved_tensors_hooks(NO_HOOKS):
                given = [tangents.alias(x) for x in self.inputs] if forward else self.inputs
                found = call(trees.unflatten(given, self.in_shape))
        finally:
            state.transforms -= 1
        self.aux = None
        if has_aux:
            if not (isinstance(found, tuple) and len(found) == 2):
                raise RuntimeError(f"{what}: output of function f should be a tuple of two, values and aux: found {type(found)}")
            found, self.aux = found
            for value in trees.leaves_of(self.aux):
                if not isinstance(value, Tensor):
                    raise RuntimeError(f"{what}: Expected tensors, got unsupported type {type(value)} in aux")
        self.found = found
        self.outputs, self.out_shape = trees.flatten(found)

    def pull(self, seeds: Sequence[Tensor], keep: bool, create_graph: bool | None = None) -> list[Tensor]:
        """The gradients of the outputs, weighted by `seeds`, with respect to the inputs; zeros where an input was not used."""
        pairs = [(o, s) for o, s in zip(self.outputs, seeds, strict=True) if o._edge() is not None]
        if not pairs:
            return [zeros_like(x).detach() for x in self.inputs]
        outs, weights = [o for o, _ in pairs], [s for _, s in pairs]
        if create_graph is None:
            create_graph = state.grad and any(_goes_on(t, self.dead) for t in (*outs, *weights))
        found = api.grad(outs, self.inputs, weights, retain_graph=keep or create_graph, create_graph=create_graph, allow_unused=True)
        return [zeros_like(x).detach() if g is None else g for g, x in zip(found, self.inputs, strict=True)]

    def leave(self, tree: Any) -> Any:
        """Results as they leave: without a history that leads nowhere but to the inputs of this run, which nobody can ask for any more."""
        for x in self.spent:
            x._spent = True
        return trees.mapped(lambda t: _left(t, self.dead) if isinstance(t, Tensor) else t, tree)


def _goes_on(tensor: Tensor, dead: set[int]) -> bool:
    """Whether somebody other than this run can ask for a derivative of what is computed from this tensor."""
    value: Any = tensor
    while isinstance(value, Batched):
        value = value.value
        if value.requires_grad:
            return True
    return _is_alive(tensor, dead)


def _is_alive(tensor: Tensor, dead: set[int]) -> bool:
    edge = tensor._edge()
    return edge is not None and any(
        nr == LEAF and id(target) not in dead and not getattr(target, "_spent", False) for target, nr in edges_from((edge,))
    )


def _left(tensor: Tensor, dead: set[int]) -> Tensor:
    if tensor._edge() is None or (state.grad and _is_alive(tensor, dead)):
        return tensor
    if isinstance(tensor, Batched) and state.grad:  # values keep their history: it is that of levels outside
        return wrapped(tensor.value, tensor.level, tensor.batched)
    return tensor.detach()


def one(output: Tensor) -> Tensor:
    """The weight of a scalar output."""
    return ones_like(output).detach()


def check_tensors(what: str, run: Run) -> None:
    """RuntimeError unless there are outputs, and all of them are tensors."""
    if run.found is None or not run.outputs:
        raise RuntimeError(f"{what}: Expected f to be a function that has non-empty output, found {run.found}")
    for i, out in enumerate(run.outputs):
        if not isinstance(out, Tensor):
            raise RuntimeError(
                f"{what}: expected f(*primals) to return only tensors (or trees of them), got {type(out).__name__} as output {i}"
            )
