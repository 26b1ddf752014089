"""The stack: who has a say in a call, in which order, and how it goes from one to the next.

The front of every operation asks one question, `modes.special`. If it is not zero, the call comes to `calls.run`, and from there it walks down
the stack: the first interpreter is given the call and `next`, which is the call of the rest. At the end the operation itself runs.

    function modes        above everything, the innermost first; then the arguments' classes with a `__torch_function__`
    KERNEL                kernels of a program's own for PyTorch's operators
    PROFILE               the profiler
    ANOMALY               looks at results
    AUTOCAST              casts operands
    OPERATION             interpreters of a program's own
    TRANSFORM             classes for which an operation means others: samples of vmap, sparse tensors
    CHECKPOINT            selective checkpoints
    DISPATCH              `__torch_dispatch__`: modes, the innermost first; then the arguments' classes

Note [off while it handles]: while an interpreter handles a call, it is not on the stack. So what it calls goes to the others alone, and where it was
the only one, the operation runs as quickly as if there were none. One that `stays` sees the parts of an operation, too; `next`
goes on behind it, so it never sees the same call twice.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from flambeau import modes

state = modes.state
FUNCTION, KERNEL, PROFILE, ANOMALY, AUTOCAST, OPERATION, TRANSFORM, CHECKPOINT, DISPATCH = range(9)


class Interpreter:
    """Somebody who has a say in what operations do.

    level          where on the stack it stands; of one level, the one that came last is first
    stays          whether it is on the stack while it handles a call, and so sees the parts of an operation, too
    operations     whether it is given operations alone, and not the functions that make tensors, or x[index]
    by_operations  whether what the framework computes by itself, derivatives and the updates of optimizers, is to be made of operations
                   while it is on the stack, so that it sees them
    handle_node    handle_node(node, grads, next) carries out a node of backward, if it wants to see these

    >>> import flambeau as torch
    >>> class Names(Interpreter):
    ...     def handle(self, function, args, kwargs, next):
    ...         print(function.__name__)
    ...         return next(*args, **kwargs)
    >>> with Names():
    ...     y = torch.ones(2).exp() * 3
    ones
    exp
    mul
    """

    level = OPERATION
    stays = False
    operations = False
    by_operations = True
    handle_node: Callable | None = None

    def handle(self, function: Callable, args: tuple, kwargs: dict, next: Callable) -> Any:
        """What `function(*args, **kwargs)` gives. `next(*args, **kwargs)`, with these arguments or others, is what the rest of the stack makes of it."""
        return next(*args, **kwargs)

    def alone(self, function: Callable, body: Callable, args: tuple, kwargs: dict) -> Any:
        """The same where it is the only one on the stack: a walk of one step."""
        next = Next(walk, (), function, body, None)
        if self.stays:
            return self.handle(function, args, kwargs, next)
        before, state.stack = state.stack, ()
        modes.special -= 1
        try:
            return self.handle(function, args, kwargs, next)
        finally:
            back(self, before, ())

    def __enter__(self) -> Any:
        push(self)
        return self

    def __exit__(self, *problem: Any) -> None:
        remove(self)


def push(interpreter: Interpreter) -> None:
    """Let it have a say in this thread, before all others of its level."""
    stack, at = state.stack, 0
    while at < len(stack) and stack[at].level < interpreter.level:
        at += 1
    state.stack = (*stack[:at], interpreter, *stack[at:])
    modes.special += 1  # here and below: see Note [counting without a lock] in modes.py


def remove(interpreter: Interpreter) -> None:
    """Take it off; of several entries, the innermost."""
    without = left_out(state.stack, interpreter)
    if without is not state.stack:
        state.stack = without
        modes.special -= 1


def left_out(stack: tuple[Interpreter, ...], interpreter: Interpreter) -> tuple[Interpreter, ...]:
    """The stack without the first entry of an interpreter."""
    for at, other in enumerate(stack):
        if other is interpreter:
            return stack[:at] + stack[at + 1 :]
    return stack


class off:
    """An interpreter is off the stack for a while."""

    def __init__(self, interpreter: Interpreter):
        self.interpreter = interpreter

    def __enter__(self) -> None:
        self.before = state.stack
        remove(self.interpreter)
        self.without = state.stack

    def __exit__(self, *problem: Any) -> None:
        back(self.interpreter, self.before, self.without)


def back(interpreter: Interpreter, before: tuple[Interpreter, ...], without: tuple[Interpreter, ...]) -> None:
    """Put one that was taken off where it was: the stack was `before`, and then `without` it."""
    if before is without:
        return  # it had gone before
    if state.stack is without:
        state.stack = before
        modes.special += 1
    else:  # something begun meanwhile has not ended
        push(interpreter)


def of(level: int) -> list[Any]:
    """All of one level, the innermost last."""
    return [i for i in reversed(state.stack) if i.level == level]


def at(level: int) -> Any:
    """The first of a level; None if there is none."""
    for interpreter in state.stack:
        if interpreter.level == level:
            return interpreter
    return None


class kept:
    """Within it, only those of the stack remain that are wanted."""

    def __init__(self, wanted: Callable[[Interpreter], bool]):
        self.wanted = wanted

    def __enter__(self) -> tuple[Interpreter, ...]:
        self.before = state.stack
        state.stack = tuple(filter(self.wanted, self.before))
        modes.special += len(state.stack) - len(self.before)
        return self.before

    def __exit__(self, *problem: Any) -> None:
        modes.special += len(self.before) - len(state.stack)
        state.stack = self.before


def by_operations() -> bool:
    """Whether somebody wants to see what the framework computes by itself."""
    for interpreter in state.stack:  # noqa: SIM110  (`any` takes twice the time, and every node of backward asks)
        if interpreter.by_operations:
            return True
    return False


# -- the walk --------------------------------------------------------------------------------------------------------------


class Next(partial):
    """The rest of a call: the others who have a say in it, and then the operation."""

    __slots__ = ()

    @property
    def relevant(self) -> tuple | None:
        """The values among which somebody may have a say; None: all arguments."""
        return self.args[3]


def walk(stack: tuple[Interpreter, ...], function: Callable, body: Callable, relevant: tuple | None, /, *args: Any, **kwargs: Any) -> Any:
    """Give a call to the first of `stack`, to whom the others are `next`. At its end is `body`, which does what `function` does and asks nobody; where
    nobody is left who could be asked, `function` itself is quicker."""
    if not stack:
        return body(*args, **kwargs) if state.stack else function(*args, **kwargs)
    first, rest = stack[0], stack[1:]
    next = Next(walk, rest, function, body, relevant)
    if first.stays:
        return first.handle(function, args, kwargs, next)
    before = state.stack
    without = state.stack = rest if before is stack else left_out(before, first)
    if without is before:
        return next(*args, **kwargs)  # whoever was asked before it has taken it off
    modes.special -= 1
    try:
        return first.handle(function, args, kwargs, next)
    finally:
        back(first, before, without)


def walk_node(node: Any, grads: list) -> list:
    """Run a node of backward, as those on the stack who want to see nodes have it."""
    run = node.apply_boxed
    for interpreter in reversed(state.stack):
        if interpreter.handle_node is not None:
            run = partial(interpreter.handle_node, node, next=run)
    return run(grads)
