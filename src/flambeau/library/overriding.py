"""Kernels of a program's own for PyTorch's operators: Library("aten", "IMPL").impl("sum", function, "CPU").

While there is one, functions of tensors ask, after all modes of the program: those whose operator has a kernel are carried out by it. The others, and
programs that override nothing, are as before. It is asked about what a program calls (torch.sum, x.sum()), in the thread that registered it;
operations that are parts of others here (the product inside nn.Linear) are not seen.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from flambeau import modes
from flambeau.interpreters.stack import KERNEL, Interpreter, left_out, push
from flambeau.operators import overloads
from flambeau.operators.overloads import OpOverload
from flambeau.tracing import names

__all__ = ["begin", "end"]

overridden: set[OpOverload] = set()


class Running(threading.local):
    """What this thread carries out by a kernel of the program now: inside it, the operator means what it always does."""

    def __init__(self) -> None:
        self.operators: set[OpOverload] = set()


running = Running()


class Overriding(Interpreter):
    """Stands below all function modes. What it calls is asked about by those below alone."""

    level, by_operations = KERNEL, False

    def handle(self, function: Callable, args: tuple, kwargs: dict[str, Any], next: Callable) -> Any:
        """Run a kernel of the program's, where there is one."""
        found = resolved(function, args, kwargs)
        if found is None or found[0] not in overridden or found[0] in running.operators:
            return next(*args, **kwargs)
        overload, given, named = found
        running.operators.add(overload)
        try:
            return overload(*given, **named)
        finally:
            running.operators.discard(overload)


mode = Overriding()
asked: list[dict[str, Any]] = []  # the settings of the thread that registered the first kernel, while there is one


def begin(overload: OpOverload) -> None:
    """An operator has a kernel now."""
    if not overridden:
        asked.append(modes.state.__dict__)
        push(mode)
    overridden.add(overload)


def end(overload: OpOverload) -> None:
    """It has none any more."""
    overridden.discard(overload)
    if not overridden and asked:
        inside = asked.pop()
        without = left_out(inside["stack"], mode)
        if without is not inside["stack"]:
            inside["stack"] = without
            modes.leave()


def resolved(function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """(operator, args, kwargs), or None."""
    if isinstance(function, OpOverload):
        return function, args, kwargs
    name = names.of(function) if hasattr(function, "op") else getattr(function, "__name__", "")
    if not any(o._opname == name for o in overridden):
        return None
    packet = overloads.defined("aten", name)
    if packet is None:
        return None
    renamed = {("self" if k == "input" else k): v for k, v in kwargs.items() if v is not None}
    try:
        return overloads.resolve(packet, args, renamed)
    except RuntimeError:
        return None
