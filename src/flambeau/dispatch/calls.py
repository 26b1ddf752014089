"""What happens to a call that a mode or the class of an argument wants to carry out: `carry_out` is asked by eager/overrides.py.

Note [below autograd]: whoever has a `__torch_dispatch__` sees operations as PyTorch's kernels do, after `__torch_function__`, autocast and
autograd. So a call is first brought down to operations that PyTorch has kernels for: a composite just runs, and its parts come here again
(`linear` becomes a transpose and an `addmm`). Then the modes and classes are asked (stack.py), under the name that PyTorch's kernel has
(names.py). What they answer gets the history that the operation has here (histories.py): its derivative is carried out by operations, which
come here in their turn. Nobody who is asked has to know about derivatives, and backward is seen as forward is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau import protocols
from flambeau.autograd import modes
from flambeau.dispatch import decompositions, factories, histories, indexing, members, names, stack
from flambeau.dispatch.leaves import LEAVES, Leaf, Watcher, leaf_of, watch
from flambeau.eager import inplace, overrides
from flambeau.eager.arguments import tensors_in
from flambeau.eager.indexing import getitem, setitem
from flambeau.ops.results import TYPES
from flambeau.tensor import Tensor

state = modes.state


def carry_out(function: Callable, args: tuple, kwargs: dict) -> Any:
    """Run any function of tensors, asking the modes and the arguments' classes about the operations in it."""
    if state.dispatch_modes and type(state.dispatch_modes[-1]) is Watcher:
        return watch(state.dispatch_modes[-1], function, args, kwargs)
    op = getattr(function, "op", None)
    if op is None:
        known = NO_OPERATIONS.get(function)
        return factories.made(function, args, kwargs) if known is None else known(*args, **kwargs)
    out = kwargs.get("out")
    kwargs = {name: value for name, value in kwargs.items() if name != "out"}
    if function is getattr(op, "call_inplace", None):
        return in_place(op, args, kwargs)
    return run(op, args, kwargs) if out is None else into(op, args, kwargs, out)


def set_(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Show other memory."""
    members.ask("set_", self, *args, **kwargs)
    return self


NO_OPERATIONS: dict[Callable, Callable] = {getitem: indexing.getitem, setitem: indexing.setitem, protocols.item: members.item}
overrides.carry_out = carry_out


def run(op, args: tuple, kwargs: dict) -> Any:
    """An operation that makes new tensors, or views."""
    instead = decompositions.DECOMPOSED.get(op.name)
    if instead is not None:
        return instead(*args, **kwargs)
    if op.kind not in LEAVES and names.of(op) is None:
        return by_parts(op, args, kwargs)
    if not wants_gradient(args, kwargs):
        return answered(op, args, kwargs)
    leaf = leaf_of(op, args, kwargs)
    if leaf is None:  # several operations here, whose histories are that of the result
        return by_parts(op, args, kwargs)
    return leaf if isinstance(leaf, Tensor) else histories.of_results(leaf, answered(op, args, kwargs))


def by_parts(op, args: tuple, kwargs: dict) -> Any:
    """An operation carried out as others, which ask in their turn."""
    if op.kind == "choice":
        chosen, *operands = op.forward(*args, **kwargs)
        return chosen.call(*operands)
    return op.forward(*args, **kwargs)


def answered(op, args: tuple, kwargs: dict, suffix: str = "") -> Any:
    """What those who are asked make of an operation, without a history."""
    overload, given, named = names.call(op, args, kwargs, suffix)
    found = results(stack.ask(overload, given, named))
    if not suffix and (op.kind == "view" or overload.is_view):
        histories.as_views(op, args, kwargs, found)
    named_result = TYPES.get(op.short)
    return (
        named_result(*found)
        if named_result is not None and type(found) in (list, tuple) and len(found) == len(named_result._fields)
        else found
    )


def results(found: Any) -> Any:
    """An answer, if it can be one."""
    if isinstance(found, (str, bytes, type)):
        raise RuntimeError(f"Unable to cast {found!r} to Tensor: __torch_dispatch__ must return what the operation returns")
    return found


def wants_gradient(args: tuple, kwargs: dict) -> bool:
    """Whether the result will have a history."""
    return state.grad and any(t.requires_grad for t in tensors_in((args, kwargs)))


# -- writing ---------------------------------------------------------------------------------------------------------------


def into(op, args: tuple, kwargs: dict, out: Any) -> Any:
    """The out= form: carried out, and given back."""
    if state.grad and any(t.requires_grad for t in tensors_in((args, kwargs, out))):
        words = "functions with out=... arguments don't support automatic differentiation, but one of the arguments requires grad"
        raise RuntimeError(f"{op.short}(): {words}. Try torch.no_grad()")
    answered(op, args, kwargs | {"out": out}, "out")
    return out


def in_place(op, args: tuple, kwargs: dict) -> Tensor:
    """Tensor.<name>_: carried out by whoever is asked; the history of what is written to begins anew."""
    if op.kind == "composite" and names.of(op, "_") is None:
        self, *rest = args
        result = op.call(self.clone() if wants_gradient(args, kwargs) else self, *rest, **kwargs)
        return self.copy_(result)
    self = args[0] if args else kwargs["input"]
    inplace.check_changeable(op, self, list(tensors_in((args, kwargs))))
    leaf = leaf_of(op, args, kwargs, in_place=True) if wants_gradient(args, kwargs) else None
    before = None if not isinstance(leaf, Leaf) else histories.before(leaf, self)
    version = self._version if not self._inference else 0
    answered(op, args, kwargs, "_")
    if not self._inference and self._version == version:
        self._bump()
    if isinstance(leaf, Leaf):
        histories.of_write(leaf, self, before)
    return self
