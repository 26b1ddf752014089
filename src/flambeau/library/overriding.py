"""Kernels of a program's own for PyTorch's operators: Library("aten", "IMPL").impl("sum", function, "CPU").

While there is one, functions of tensors ask, after all modes of the program: those whose operator has a kernel are carried out by it. The others, and
programs that override nothing, are as before. It is asked about what a program calls (torch.sum, x.sum()), in the thread that registered it;
operations that are parts of others here (the product inside nn.Linear) are not seen.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from flambeau.autograd import modes
from flambeau.ops import overloads
from flambeau.ops.overloads import OpOverload
from flambeau.tracing import names

__all__ = ["begin", "end"]

overridden: set[OpOverload] = set()


class Running(threading.local):
    """What this thread carries out by a kernel of the program now: inside it, the operator means what it always does."""

    def __init__(self) -> None:
        self.operators: set[OpOverload] = set()


running = Running()


class Overriding:
    """Stands below all function modes."""

    def __torch_function__(self, function: Callable, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        overload = operator(function, args, kwargs)
        if overload is None or overload not in overridden or overload in running.operators:
            with self.again():
                return function(*args, **kwargs)
        running.operators.add(overload)
        try:
            with self.again():
                _, args, kwargs = resolved(function, args, kwargs)
                return overload(*args, **kwargs)
        finally:
            running.operators.discard(overload)

    def again(self) -> Any:
        """Nothing: what is inside is asked about by those above alone."""
        from contextlib import nullcontext

        return nullcontext()


mode = Overriding()


def begin(overload: OpOverload) -> None:
    """An operator has a kernel now."""
    if not overridden:
        modes.state.function_modes.insert(0, mode)
        modes.enter()
    overridden.add(overload)


def end(overload: OpOverload) -> None:
    """It has none any more."""
    overridden.discard(overload)
    if not overridden and mode in modes.state.function_modes:
        modes.state.function_modes.remove(mode)
        modes.leave()


def operator(function: Callable, args: tuple, kwargs: dict[str, Any]) -> OpOverload | None:
    """The operator that a function of tensors is, for these arguments; None if it is none that is overridden."""
    found = resolved(function, args, kwargs)
    return None if found is None else found[0]


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
