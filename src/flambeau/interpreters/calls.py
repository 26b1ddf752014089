"""Where a call enters the stack: the fronts of operations come here while `modes.special` is not zero, or where an argument is of a class of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from flambeau import modes
from flambeau.interpreters.by_name import CLASSES, OPTIONS, Classes, any_foreign, overloaded, passed, sees_building_blocks
from flambeau.interpreters.stack import DISPATCH, FUNCTION, TRANSFORM, Interpreter, walk
from flambeau.tensor import DISPATCHED, PLAIN

state = modes.state


def run(function: Callable, body: Callable, args: tuple, kwargs: dict) -> Any:
    """The operation `function(*args, **kwargs)`, as those who have a say in it want it. `body` does what it does, and asks nobody."""
    stack = state.stack if modes.special else ()
    values = (*args, *kwargs.values()) if kwargs else args
    for value in values:  # `any_foreign`, without the call
        kind = type(value)
        if kind not in PLAIN and kind not in OPTIONS and (kind is not tuple or (value and type(value[0]) is not int)):
            stack = _with_classes(stack, values)
            break
    else:
        if stack and stack[0].level == FUNCTION and (state.modes_disabled or state.redispatched):
            stack = _with_classes(stack, ())
    if len(stack) == 1:
        return stack[0].alone(function, body, args, kwargs)
    return walk(stack, function, body, None, *args, **kwargs) if stack else body(*args, **kwargs)


def run_function(function: Callable, body: Callable, args: tuple, kwargs: dict, relevant: tuple, named: bool = True) -> Any:
    """The same of a function that is no operation.

    relevant  the values that may have a say
    named     whether `__torch_function__` is told of it
    """
    stack = state.stack if modes.special else ()
    foreign = any_foreign(relevant)
    if len(stack) == 1 and not foreign and not (state.modes_disabled or state.redispatched):  # the usual case, without detours
        first = stack[0]
        unasked = first.operations or (first.level == FUNCTION and not named)
        return body(*args, **kwargs) if unasked else first.alone(function, body, args, kwargs)
    stack = tuple([i for i in stack if not i.operations and (named or i.level != FUNCTION)])
    if foreign or stack:
        stack = _with_classes(stack, relevant, named)
    return walk(stack, function, body, relevant, *args, **kwargs) if stack else body(*args, **kwargs)


class BuildingBlocks(Interpreter):
    """Classes of a call's arguments for which operations mean others."""

    level, stays, by_operations = TRANSFORM, True, False
    handle = Classes.handle


class Dispatching(Interpreter):
    """`__torch_dispatch__`. Who sees what, and when it is off the stack, is decided where the operation has come down to kernels: see dispatch/."""

    level, stays = DISPATCH, True

    def handle(self, function: Callable, args: tuple, kwargs: dict, next: Callable) -> Any:
        return carry_out(function, args, kwargs) if state.dispatching else next(*args, **kwargs)


class DispatchMode(Dispatching):
    """A mode with a `__torch_dispatch__`."""

    def __init__(self, mode: Any):
        self.mode = mode


BUILDING_BLOCKS, DISPATCHING = BuildingBlocks(), Dispatching()


def carry_out(function: Callable, args: tuple, kwargs: dict) -> Any:
    """Run a function of tensors as those who carry operations out want it: the room that knows how puts its own here when it is loaded."""
    raise NotImplementedError("dispatch/calls.py has not been loaded")


def _with_classes(stack: tuple[Interpreter, ...], values: tuple, named: bool = True) -> tuple[Interpreter, ...]:
    """The stack, and the classes of arguments where they have a say."""
    asked = not named or (modes.special and passed())
    if asked or (modes.special and state.modes_disabled):
        stack = tuple([i for i in stack if i.level != FUNCTION])
    candidates = () if asked else overloaded(values)[1]
    if candidates:
        stack = _inserted(stack, BUILDING_BLOCKS if all(map(sees_building_blocks, candidates)) else CLASSES)
    return _inserted(stack, DISPATCHING) if dispatched(values) else stack


def _inserted(stack: tuple[Interpreter, ...], interpreter: Interpreter) -> tuple[Interpreter, ...]:
    """The stack with one more, behind the others of its level."""
    at = 0
    while at < len(stack) and stack[at].level <= interpreter.level:
        at += 1
    return (*stack[:at], interpreter, *stack[at:])


def dispatched(values: Iterable) -> bool:
    """Whether a mode or the class of an argument carries operations out: see dispatch/."""
    if modes.special:
        if not state.dispatching:
            return False
        if state.stack and state.stack[-1].level == DISPATCH:
            return True
    return bool(DISPATCHED) and any(map(_is_dispatched, values))


def _is_dispatched(value: Any) -> bool:
    kind = type(value)
    return kind in DISPATCHED or (kind in (list, tuple, dict) and any(map(_is_dispatched, value.values() if kind is dict else value)))
