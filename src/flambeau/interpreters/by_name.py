"""`__torch_function__`: function modes, and classes of arguments, which are told of a function as the program called it.

They come before everything else. A mode is asked first, the innermost alone; what it calls goes to those outside of it. If it declines
(NotImplemented), or there is none, the classes of the arguments are asked, subclasses before their parents.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from flambeau import devices, dtypes, modes
from flambeau.interpreters.stack import FUNCTION, Interpreter, Next, of, off, push, remove, walk
from flambeau.tensor import PLAIN, Tensor

state = modes.state
OPTIONS: set[type] = {int, float, bool, complex, str, type(None), dtypes.dtype, devices.device}
_WITHOUT: set[type] = OPTIONS | {tuple, list, dict, slice}


class FunctionMode(Interpreter):
    """A function mode on the stack: an object with a `__torch_function__`."""

    level = FUNCTION
    by_operations = False

    def __init__(self, mode: Any):
        self.mode = mode

    def handle(self, function: Callable, args: tuple, kwargs: dict, next: Callable) -> Any:
        shown, relevant = getattr(function, "shown", function), relevant_to(next, args, kwargs)
        types = overloaded(relevant)[0] if any_foreign(relevant) else ()
        result = self.mode.__torch_function__(shown, types, *named(shown, args, kwargs))
        if result is NotImplemented:
            with self:  # what the classes call goes to the mode again
                return ask(function, relevant, args, kwargs)
        return result


class Classes(Interpreter):
    """The classes of a call's arguments."""

    level, stays, by_operations = FUNCTION, True, False

    def handle(self, function: Callable, args: tuple, kwargs: dict, next: Callable) -> Any:
        return ask(function, relevant_to(next, args, kwargs), args, kwargs)


CLASSES = Classes()


def relevant_to(next: Any, args: tuple, kwargs: dict) -> tuple:
    """The values that have a say in a call."""
    return (*args, *kwargs.values()) if next.relevant is None else next.relevant


class NobodyAnswered(TypeError):
    """All who were asked returned NotImplemented. An operator returns that, too: then it is the other operand's turn."""


def ask(function: Callable, relevant: Iterable, args: tuple, kwargs: dict) -> Any:
    """What the arguments' classes make of a call."""
    itself, function = function, getattr(function, "shown", function)
    types, candidates = overloaded(relevant)
    for asked in candidates:
        if sees_building_blocks(asked):
            result = asked.__torch_function__(itself, types, args, kwargs)
        else:
            result = asked.__torch_function__(function, types, *named(function, args, kwargs))  # of the object: it may be no classmethod
        if result is not NotImplemented:
            return result
    name, found = getattr(function, "__name__", function), ", ".join(t.__name__ for t in types)
    what = "all __torch_function__ handlers returned NotImplemented: no implementation found for types"
    raise NobodyAnswered(f"Multiple dispatch failed for 'torch.{name}'; {what} [{found}]")


def call(function: Callable, relevant: Iterable, args: tuple, kwargs: dict) -> Any:
    """Ask the innermost mode, or else the arguments' classes, for the result of a function that is not one of ours."""
    mode = innermost()
    if mode is None:
        return ask(function, relevant, args, kwargs)
    with off(mode):
        return mode.handle(function, args, kwargs, Next(walk, (), function, function, tuple(relevant)))


def innermost() -> FunctionMode | None:
    """The function mode that would be asked now."""
    stack = state.stack
    return stack[0] if stack and stack[0].level == FUNCTION and not state.modes_disabled else None


def passed() -> bool:
    """Whether this call is the one that has been asked about already: see torch.overrides.redispatch_function."""
    if state.redispatched:
        state.redispatched = False
        return True
    return False


# -- who has a say ---------------------------------------------------------------------------------------------------------


def has_override(value: Any) -> bool:
    """Whether this argument's class defines its own `__torch_function__`."""
    kind = type(value)
    if kind in PLAIN or kind in _WITHOUT:
        return False
    function = getattr(kind, "__torch_function__", None)
    return function is not None and function is not disabled_torch_function


def overridden(values: Iterable) -> bool:
    """Whether a function mode is active or an argument overrides operations."""
    if modes.special:
        if passed():
            return False
        if innermost() is not None:
            return True
        if state.function_disabled:
            return False
    for value in values:
        if type(value) not in PLAIN:
            if isinstance(value, (list, tuple)):
                if any(has_override(v) for v in value):
                    return True
            elif has_override(value):
                return True
    return False


def knows_by_name(values: tuple) -> bool:
    """Whether somebody who looks at names is to be asked: a function mode or a class, but none that carries operations out."""
    return overridden(values) and (innermost() is not None or not all(map(sees_building_blocks, overloaded(values)[1])))


def any_foreign(values: Iterable) -> bool:
    """A cheap question first: whether something among the arguments is neither a plain tensor nor a plain option."""
    for value in values:
        kind = type(value)
        if kind not in PLAIN and kind not in OPTIONS and (kind is not tuple or (value and type(value[0]) is not int)):
            return True
    return False


def sees_building_blocks(value: Any) -> bool:
    """Whether the class of this argument is told which operation runs, not under which name it was called."""
    return getattr(type(value), "_sees_building_blocks", False)


def overloaded(relevant: Iterable) -> tuple[tuple[type, ...], list]:
    """The overriding types and one argument of each, a subclass before the class it derives from."""
    found: list = []
    types: list[type] = []
    if state.function_disabled:
        return (), []
    for value in relevant:
        for item in value if isinstance(value, (list, tuple)) else (value,):
            kind = type(item)
            if kind not in PLAIN and kind not in types and has_override(item):
                at = next((i for i, other in enumerate(types) if issubclass(kind, other)), len(types))
                types.insert(at, kind)
                found.insert(at, item)
    return tuple(types), found


# Functions of torch.nn.functional that PyTorch has compiled: who is asked sees them as they were called.
AS_CALLED = frozenset(
    """adaptive_avg_pool1d avg_pool1d avg_pool2d avg_pool3d bilinear channel_shuffle conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d
    conv_transpose3d cosine_similarity gelu hardshrink linear logsigmoid native_channel_shuffle one_hot pairwise_distance pdist pixel_shuffle pixel_unshuffle
    prelu scaled_dot_product_attention softplus softshrink""".split()
)


def named(function: Callable, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """The arguments of a call as `__torch_function__` is told of them. The functions of torch.nn.functional are Python in PyTorch, and say everything
    that has a default by its name, wherever it came from: programs count on finding it there."""
    op = getattr(function, "op", None)
    if op is None or not op.name.startswith("nn.functional.") or op.short in AS_CALLED or function.__name__ != op.short:
        return args, kwargs
    if not hasattr(op, "spoken"):
        op.spoken = inspect.signature(op.forward)
    try:
        bound = op.spoken.bind(*args, **kwargs)
    except TypeError:
        return args, kwargs  # the function itself will say what is wrong
    bound.apply_defaults()
    parameters = op.spoken.parameters.values()
    first = [p.name for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    return tuple([bound.arguments[name] for name in first]), {name: value for name, value in bound.arguments.items() if name not in first}


# -- function modes and settings -------------------------------------------------------------------------------------------


def push_mode(mode: Any) -> None:
    """Ask this object's `__torch_function__` first, from now on."""
    push(FunctionMode(mode))


def pop_mode() -> Any:
    """Ask the innermost mode no more."""
    found = of(FUNCTION)[-1]
    remove(found)
    return found.mode


def function_modes() -> list[Any]:
    """The function modes of this thread, the innermost last."""
    return [entry.mode for entry in of(FUNCTION)]


class DisableTorchFunctionSubclass:
    """Within it, `__torch_function__` of subclasses is not consulted; modes still are."""

    modes_too = False

    def __enter__(self) -> None:
        self.before = state.function_disabled, state.modes_disabled
        state.function_disabled, state.modes_disabled = True, state.modes_disabled or self.modes_too
        modes.enter()

    def __exit__(self, *exc) -> None:
        state.function_disabled, state.modes_disabled = self.before
        modes.leave()


class DisableTorchFunction(DisableTorchFunctionSubclass):
    """Within it, neither subclasses nor modes are consulted."""

    modes_too = True


# -- the defaults ----------------------------------------------------------------------------------------------------------


def disabled_torch_function(cls, func, types, args=(), kwargs=None):
    """A `__torch_function__` for classes that want none: results are plain tensors."""
    with DisableTorchFunctionSubclass():
        return func(*args, **(kwargs or {}))


def default_torch_function(cls, func, types, args=(), kwargs=None):
    """Tensor's own: run the operation and give results the subclass's type."""
    if not all(issubclass(cls, t) for t in types):
        return NotImplemented
    with DisableTorchFunctionSubclass():
        result = func(*args, **(kwargs or {}))
        return result if func in NOWRAP else convert(result, cls)


NOWRAP: set[Callable] = {Tensor.grad.__get__}  # what belongs to a tensor without being made by it


def convert(result: Any, cls: type) -> Any:
    """`result` with tensors in it turned into the subclass."""
    if cls is Tensor:
        return result
    if isinstance(result, Tensor) and not isinstance(result, cls):
        return result.as_subclass(cls)
    if isinstance(result, (tuple, list)):
        items = [convert(r, cls) for r in result]
        return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)
    return result
