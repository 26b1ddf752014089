"""To which operation with a derivative a call comes down.

`mean(x, dim=0)` is a composite whose history is that of `_mean`; `x + 2` is a choice that comes down to `_add`. Whoever is asked sees one
operation by its public name, and the history of the answer is that of the leaf. Which leaf that is, is found by running the call on tensors
without data that look like the arguments, and watching.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.dispatch import stack
from flambeau.dispatch.names import LEAVES
from flambeau.eager.arguments import Arguments, tensors_in
from flambeau.eager.pointwise import _sorter
from flambeau.interpreters import stack as interpreters
from flambeau.kernels import arrays
from flambeau.kernels.meta import MetaArray
from flambeau.tensor import Tensor, wrap


class Leaf:
    """An operation that is recorded, with the arguments that its history is made of.

    values   of an array operation or a view: its arguments in order
    options  of a pointwise operation, whose `values` are its operands
    """

    __slots__ = ("op", "options", "values")

    def __init__(self, op, values: tuple, options: tuple = ()):
        self.op, self.values, self.options = op, values, options

    def with_tensors(self, replaced: Callable[[Tensor], Tensor | None]) -> Leaf | None:
        """The same with other tensors; None if one has no replacement."""
        missing: list = []

        def other(value: Any) -> Any:
            if isinstance(value, Tensor):
                found = replaced(value)
                missing.extend([value] * (found is None))
                return found
            if type(value) in (list, tuple):
                return type(value)([other(v) for v in value])
            return value

        values = other(self.values)
        return None if missing else Leaf(self.op, values, self.options)


class Watcher(interpreters.Interpreter):
    """Stands on the stack alone while a call runs on tensors without data, and notes the leaves it comes to."""

    level, stays = interpreters.DISPATCH, True

    def __init__(self) -> None:
        self.seen: list[tuple[Leaf, Any]] = []
        self.more = False  # something was made or written to that no leaf accounts for

    def handle(self, function: Callable, args: tuple, kwargs: dict, next: Callable) -> Any:
        """A function of tensors without data."""
        op = getattr(function, "op", None)
        if op is not None and op.kind in ("composite", "choice") and function is op.call:
            return next(*args, **kwargs)
        with interpreters.off(self):
            result = next(*args, **kwargs)
        if op is None or op.kind not in LEAVES:
            self.more = True
        else:
            self.seen.append((sorted_arguments(op, args, kwargs), result))
        return result


def sorted_arguments(op, args: tuple, kwargs: dict) -> Leaf:
    """The arguments of an operation that is a leaf itself."""
    if op.kind == "pointwise":
        if not hasattr(op, "sort"):
            op.sort = _sorter(op)
        return Leaf(op, *op.sort(args, kwargs))
    if not hasattr(op, "arguments"):
        op.arguments = Arguments(op)
    values = op.arguments.values(args, kwargs)
    return Leaf(op, tuple([list(v) if type(v) is tuple and any(isinstance(t, Tensor) for t in v) else v for v in values]))


def leaf_of(op, args: tuple, kwargs: dict, in_place: bool = False) -> Leaf | Tensor | None:
    """The leaf that a call comes down to; the tensor, if it gives one of its arguments back; None if it is made of several operations."""
    if op.kind in LEAVES:
        return sorted_arguments(op, args, kwargs)
    real: dict[int, Tensor] = {}
    twins = {id(t): meta_twin(t) for t in tensors_in((args, kwargs))}
    for t in tensors_in((args, kwargs)):
        real[id(twins[id(t)])] = t
    given, named = _with_twins(args, twins), _with_twins(kwargs, twins)
    watcher = Watcher()
    try:
        result = _watched(op, given, named, watcher, in_place)
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError, AttributeError):
        return None  # whoever carries it out will say what is wrong, or it has to look at values
    if not watcher.seen and not watcher.more:
        return real.get(id(result)) if isinstance(result, Tensor) else None
    if len(watcher.seen) != 1 or watcher.more:
        return None
    leaf, made = watcher.seen[0]
    if not in_place and not _same(result, made):
        return None
    return leaf.with_tensors(lambda twin: real.get(id(twin)))


def _watched(op, args: tuple, kwargs: dict, watcher: Watcher, in_place: bool) -> Any:
    with interpreters.kept(lambda entry: False), watcher, stack.below_autograd():
        if op.kind == "choice":
            chosen, *operands = op.forward(*args, **kwargs)
            return (chosen.call_inplace if in_place else chosen.call)(*operands)
        return op.forward(*args, **kwargs)


def meta_twin(tensor: Tensor) -> Tensor:
    """A tensor without data that looks the same."""
    array = tensor._array
    return wrap(MetaArray(tuple(array.shape), array.dtype, arrays.element_strides(array)))


def _with_twins(value: Any, twins: dict[int, Tensor]) -> Any:
    if isinstance(value, Tensor):
        return twins[id(value)]
    if isinstance(value, dict):
        return {name: _with_twins(v, twins) for name, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)([_with_twins(v, twins) for v in value])
    return value


def _same(result: Any, made: Any) -> bool:
    """Whether a call gives back what the leaf has made, and all of it."""
    if isinstance(result, Tensor) or isinstance(made, Tensor):
        return result is made
    return isinstance(result, tuple | list) and len(result) == len(made) and all(a is b for a, b in zip(result, made, strict=True))
