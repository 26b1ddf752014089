"""Who is asked to carry an operation out: the innermost mode, then the classes of its arguments, subclasses before their parents.

While a mode is being asked it is not on the stack, so that what it calls goes to the mode outside of it. While anybody is being asked nothing
is recorded: histories are made above, of what the answer is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flambeau import modes
from flambeau.eager import overrides
from flambeau.eager.arguments import tensors_in
from flambeau.interpreters import calls, stack
from flambeau.tensor import DISPATCHED, Tensor

state = modes.state


def push(mode: Any) -> None:
    """Ask this mode first, from now on."""
    stack.push(calls.DispatchMode(mode))


def pop() -> Any:
    """Ask the innermost mode no more."""
    innermost = stack.at(stack.DISPATCH)
    stack.remove(innermost)
    return innermost.mode


@contextlib.contextmanager
def without_mode() -> Iterator[Any]:
    """Take the innermost mode off the stack for a while."""
    innermost = stack.at(stack.DISPATCH)
    with stack.off(innermost):
        yield innermost.mode


def current_modes() -> list[Any]:
    """The modes of this thread, the innermost last."""
    return [entry.mode for entry in stack.of(stack.DISPATCH)]


@contextlib.contextmanager
def below_autograd() -> Iterator[None]:
    """Record nothing, and remember whether the program does."""
    before, state.recording_above = (
        (state.grad, state.recording_above),
        state.grad if state.recording_above is None else state.recording_above,
    )
    modes.set_recording(False)
    try:
        yield
    finally:
        grad, state.recording_above = before
        modes.set_recording(grad)


not_dispatching = overrides.on_memory


def askable(args: Any, kwargs: dict) -> tuple[tuple[type, ...], list[Tensor]]:
    """The classes among the arguments that carry operations out, and a tensor of each: subclasses before their parents."""
    types: list[type] = []
    found: list[Tensor] = []
    for tensor in tensors_in((args, kwargs)):
        kind = type(tensor)
        if kind in DISPATCHED and kind not in types:
            at = next((i for i, other in enumerate(types) if issubclass(kind, other)), len(types))
            types.insert(at, kind)
            found.insert(at, tensor)
    return tuple(types), found


def ask(function: Any, args: tuple, kwargs: dict) -> Any:
    """What the modes or the classes of the arguments make of a call; TypeError if all of them decline."""
    types, found = askable(args, kwargs)
    askers: Sequence[Callable] = [tensor.__torch_dispatch__ for tensor in found]
    with below_autograd():
        if stack.at(stack.DISPATCH) is not None:
            with without_mode() as mode:
                result = mode.__torch_dispatch__(function, types, args, kwargs)
            if result is not NotImplemented:
                return result
        for asker in askers:
            result = asker(function, types, args, kwargs)
            if result is not NotImplemented:
                return result
    raise declined(function, types, [type(t).__name__ for t in found])


def declined(function: Any, types: tuple[type, ...], names: list[str]) -> TypeError:
    """Nobody carries the operation out."""
    who, name = ", ".join(names) or "a mode", str(function).removesuffix(".default")
    return TypeError(
        f"Multiple dispatch failed for 'torch.ops.{name}'; all __torch_dispatch__ handlers returned NotImplemented: asked were {who}, for "
        f"tensors of {', '.join(t.__name__ for t in types) or 'torch.Tensor alone'}. Return a result from one of them"
    )
