"""Operators that programs define, where a mode or class with `__torch_dispatch__` meets them: below autograd, as PyTorch's kernels are met.

A rule that was registered for the class (`register_torch_dispatch`) stands for its `__torch_dispatch__`.
"""

from __future__ import annotations

from typing import Any

from flambeau.dispatch import stack
from flambeau.library.kernels import Entry


def ask(entry: Entry, args: tuple, kwargs: dict[str, Any]) -> Any:
    """What the innermost mode, or else the classes of the arguments, make of a call; NotImplemented if there are none."""
    types, found = stack.askable(args, kwargs)
    inside = stack.current_modes()
    if not types and not inside:
        return NotImplemented
    overload, rules = entry.overload, entry.dispatch_rules
    with stack.below_autograd():
        if inside:
            with stack.without_mode() as mode:
                rule = rules.get(type(mode))
                asked = mode.__torch_dispatch__ if rule is None else _bound(rule, mode)
                result = asked(overload, types, args, kwargs)
            if result is not NotImplemented:
                return result
        for tensor in found:
            rule = rules.get(type(tensor))
            asked = tensor.__torch_dispatch__ if rule is None else _bound(rule, type(tensor))
            result = asked(overload, types, args, kwargs)
            if result is not NotImplemented:
                return result
    raise stack.declined(overload, types, [type(t).__name__ for t in found])


def _bound(rule: Any, first: Any) -> Any:
    return lambda *args: rule(first, *args)
