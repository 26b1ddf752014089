"""What happens to a call that a mode or the class of an argument wants to carry out: `carry_out` is asked by interpreters/calls.py.

Note [below autograd]: whoever has a `__torch_dispatch__` sees operations as PyTorch's kernels do, after `__torch_function__`, autocast and
autograd. So a call is first brought down to operations that PyTorch has kernels for: a composite just runs, and its parts come here again
(`linear` becomes a transpose and an `addmm`). Then the modes and classes are asked (stack.py), under the name that PyTorch's kernel has
(names.py). What they answer gets the history that the operation has here (histories.py): its derivative is carried out by operations, which
come here in their turn. Nobody who is asked has to know about derivatives, and backward is seen as forward is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau import modes
from flambeau.dispatch import decompositions, factories, histories, indexing, members, names, stack
from flambeau.dispatch.leaves import Leaf, Watcher, leaf_of, meta_twin
from flambeau.dispatch.proxy import Proxy
from flambeau.eager import inplace
from flambeau.eager.arguments import tensors_in
from flambeau.eager.indexing import getitem, setitem
from flambeau.eager.record import record_array
from flambeau.interpreters import calls
from flambeau.interpreters import stack as interpreters
from flambeau.operators import overloads
from flambeau.operators.overloads import OpOverload
from flambeau.operators.tags import is_composite
from flambeau.ops import formats
from flambeau.ops.results import TYPES
from flambeau.tensor import Tensor
from flambeau.tensor.memory import untyped_storage
from flambeau.tensor.methods import protocols
from flambeau.tensor.methods.inplace_views import BECOMING

state = modes.state


def carry_out(function: Callable, args: tuple, kwargs: dict) -> Any:
    """Run any function of tensors, asking the modes and the arguments' classes about the operations in it."""
    op = getattr(function, "op", None)
    if op is None and function in BECOMING:
        return become(BECOMING[function], *args, **kwargs)
    if op is None:
        known = NO_OPERATIONS.get(function)
        return factories.made(function, args, kwargs) if known is None else known(*args, **kwargs)
    out = kwargs.get("out")
    kwargs = {name: value for name, value in kwargs.items() if name != "out"}
    if function is getattr(op, "call_inplace", None):
        return in_place(op, args, kwargs)
    return run(op, args, kwargs) if out is None else into(op, args, kwargs, out)


def become(name: str, self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """transpose_, squeeze_, ...: whoever is asked turns what the tensor is made of; what it shows is turned here."""
    before = self.detach()
    before._node, before._nr, before._needs = self.grad_fn, self._nr, self._needs
    members.ask(f"{name}_", self, *args, **kwargs)
    op = getattr(Tensor, name).op
    array = self._array
    if isinstance(array, Proxy):
        shown = meta_twin(before)
        with stack.not_dispatching(), stack.below_autograd():
            seen = op.call(shown, *args, **kwargs)
        self._array = Proxy(self, seen.shape, array.dtype, seen.stride(), seen.storage_offset(), array.device, array.layout)
    if state.grad and before._needs and self._is_float():
        leaf = leaf_of(op, (before, *args), kwargs)
        if isinstance(leaf, Leaf):
            record_array(leaf.op, (self,), leaf.values)
            self._node.by_operations = True
    self._bump()
    return self


def set_(self: Tensor, source: Any, storage_offset: int, size: Any, stride: Any) -> Tensor:
    """Show other memory."""
    places = () if size is None else (storage_offset, list(size), [] if stride is None else list(stride))
    members.ask("set_", self, *(() if source is None else (source,)), *places)
    return self


def resize_(self: Tensor, *sizes: Any, memory_format: Any) -> Tensor:
    """Another shape; what is shown follows."""
    shape = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], tuple | list) else sizes
    members.ask("resize_", self, list(shape), **({} if memory_format is formats.contiguous_format else {"memory_format": memory_format}))
    if isinstance(self._array, Proxy):
        now = self._array
        strides = formats.strides_for(memory_format, tuple(shape), ())
        self._array = Proxy(self, tuple(shape), now.dtype, strides, now.offset, now.device, now.layout)
    return self


NO_OPERATIONS: dict[Callable, Callable] = {getitem: indexing.getitem, setitem: indexing.setitem, protocols.item: members.item}
NO_OPERATIONS |= {untyped_storage.set_: set_, untyped_storage.resize_: resize_}
calls.carry_out = carry_out


def run(op, args: tuple, kwargs: dict) -> Any:
    """An operation that makes new tensors, or views."""
    instead = decompositions.DECOMPOSED.get(op.name)
    if instead is not None:
        return instead(*args, **kwargs)
    is_leaf = op.kind in names.LEAVES
    asked = names.call(op, args, kwargs) if is_leaf or names.of(op) is not None else None
    if asked is None:
        return by_parts(op, args, kwargs)
    if not wants_gradient(args, kwargs):
        return answered(op, args, kwargs, asked)
    leaf = leaf_of(op, args, kwargs)
    if leaf is None:  # several operations here, whose histories are that of the result
        return by_parts(op, args, kwargs)
    return leaf if isinstance(leaf, Tensor) else histories.of_results(leaf, answered(op, args, kwargs, asked))


def by_parts(op, args: tuple, kwargs: dict) -> Any:
    """An operation carried out as others, which ask in their turn."""
    if op.kind == "choice":
        chosen, *operands = op.forward(*args, **kwargs)
        return chosen.call(*operands)
    return op.forward(*args, **kwargs)


def answered(op, args: tuple, kwargs: dict, asked: names.Call) -> Any:
    """What those who are asked make of an operation, without a history."""
    found = results(stack.ask(*asked[:3]))
    if asked.which is not None:
        found = found[asked.which]
    if op.kind == "view" or asked.overload.is_view:
        histories.as_views(op, args, kwargs, found)
    result_type = getattr(op, "result_type", None) or TYPES.get(op.name.replace(".", "_"))
    if result_type is not None and type(found) in (list, tuple) and len(found) == len(result_type._fields):
        return result_type(*found)
    return found


def results(found: Any) -> Any:
    """An answer, if it can be one."""
    if isinstance(found, (str, bytes, type)):
        raise RuntimeError(f"Unable to cast {found!r} to Tensor: __torch_dispatch__ must return what the operation returns")
    return found


def wants_gradient(args: tuple, kwargs: dict) -> bool:
    """Whether the result will have a history."""
    return state.grad and any(t.requires_grad for t in tensors_in((args, kwargs)))


GEOMETRY = frozenset(
    "dim is_contiguous is_non_overlapping_and_dense is_strides_like_format numel size storage_offset stride sym_is_contiguous sym_numel sym_size "
    "sym_storage_offset sym_stride".split()
)  # what a tensor shows by itself


def by_name(overload: OpOverload, args: tuple, kwargs: dict) -> Any:
    """torch.ops.aten.<...>(...): a kernel of PyTorch's is asked for as itself, where it has neither a history to get nor anything to write."""
    if overload.namespace != "aten" or overload.is_mutable or type(interpreters.at(interpreters.DISPATCH)) is Watcher:
        return NotImplemented
    if not calls.dispatched((*args, *kwargs.values())):
        return NotImplemented
    if overload._opname in GEOMETRY:
        return members.geometry(overload, args, kwargs)
    if is_composite(overload._schema) or wants_gradient(args, kwargs):
        return NotImplemented
    found = results(stack.ask(*overloads.resolve(overload, args, kwargs)))
    if overload.is_view:
        histories.as_views(overload, args, kwargs, found)
    return found


overloads.intercept = by_name


# -- writing ---------------------------------------------------------------------------------------------------------------


def into(op, args: tuple, kwargs: dict, out: Any) -> Any:
    """The out= form: carried out, and given back."""
    if state.grad and any(t.requires_grad for t in tensors_in((args, kwargs, out))):
        words = "functions with out=... arguments don't support automatic differentiation, but one of the arguments requires grad"
        raise RuntimeError(f"{op.short}(): {words}. Try torch.no_grad()")
    asked = names.call(op, args, kwargs | {"out": out}, "out")
    if asked is not None:
        results(stack.ask(*asked[:3]))
        return out
    found = op.call(*args, **kwargs)  # no kernel writes where it is told to
    pairs = [(out, found)] if isinstance(out, Tensor) else zip(out, found, strict=True)
    for place, result in pairs:
        place.copy_(result)
    return out


def in_place(op, args: tuple, kwargs: dict) -> Tensor:
    """Tensor.<name>_: carried out by whoever is asked; the history of what is written to begins anew."""
    self, *rest = args if args else (kwargs["input"],)
    inplace.check_changeable(op, self, list(tensors_in((args, kwargs))))
    asked = names.call(op, args, kwargs, "_") if op.kind in names.LEAVES or names.of(op, "_") is not None else None
    wanted = wants_gradient(args, kwargs)
    leaf = leaf_of(op, args, kwargs, in_place=True) if wanted and asked is not None else None
    if asked is None or (wanted and not isinstance(leaf, Leaf)):
        return _computed_and_written(op, self, rest, kwargs, wanted)
    before = histories.before(leaf, self) if isinstance(leaf, Leaf) else None
    version = 0 if self._inference else self._version
    results(stack.ask(*asked[:3]))
    if not self._inference and self._version == version:
        self._bump()
    if isinstance(leaf, Leaf) and before is not None:
        histories.of_write(leaf, self, before)
    return self


def _computed_and_written(op, self: Tensor, rest: list, kwargs: dict, wanted: bool) -> Tensor:
    """What no kernel does in place, or what several operations are to be remembered of: from a copy, if derivatives may read what was there."""
    if op.kind == "choice":
        chosen, *operands = op.forward(self, *rest, **kwargs)
        return chosen.call_inplace(*operands)
    found = op.call(self.clone() if wanted else self, *rest, **{k: v for k, v in kwargs.items() if k != "input"})
    return self.copy_(found)
