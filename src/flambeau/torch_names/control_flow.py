"""Branches and loops as functions, which PyTorch's tracer needs and Python does not: cond, while_loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau import modes
from flambeau.interpreters import stack
from flambeau.ops import ABOVE
from flambeau.tensor import Tensor


def cond(pred: Any, true_fn: Callable, false_fn: Callable, operands: tuple | list = ()) -> Any:
    """true_fn(*operands) if pred holds, else false_fn(*operands)."""
    if not isinstance(pred, (bool, Tensor)):
        raise RuntimeError(f"Expected pred to be bool or a single-element boolean tensor, but got {type(pred).__name__}")
    if isinstance(pred, Tensor) and pred.numel() != 1:
        raise RuntimeError(f"cond: pred is a bool, or a tensor of one, found shape {tuple(pred.shape)}")
    if modes.special and stack.at(stack.DISPATCH) is not None:
        return ABOVE["higher_order"]().cond(pred, true_fn, false_fn, operands)  # which asks them
    return chosen(pred, true_fn, false_fn, operands)


def chosen(pred: Any, true_fn: Callable, false_fn: Callable, operands: tuple | list) -> Any:
    """The branch that is taken."""
    return (true_fn if bool(pred) else false_fn)(*operands)


def while_loop(cond_fn: Callable, body_fn: Callable, carried_inputs: tuple | list) -> tuple:
    """Replace the values by body_fn(*values) as long as cond_fn(*values) holds; the last ones are returned."""
    return repeated(cond_fn, body_fn, carried_inputs)


def repeated(cond_fn: Callable, body_fn: Callable, carried_inputs: tuple | list) -> tuple:
    """The loop itself."""
    values = tuple(carried_inputs)
    while bool(cond_fn(*values)):
        made = body_fn(*values)
        values = tuple(made) if isinstance(made, (tuple, list)) else (made,)
        if len(values) != len(carried_inputs):
            raise RuntimeError(f"body_fn must return as many values as it takes: {len(carried_inputs)}, found {len(values)}")
    return values
