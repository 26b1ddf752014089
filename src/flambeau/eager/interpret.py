"""A derivative formula carried out with tensor operations, so that it can be differentiated again."""

from __future__ import annotations

from functools import partial

import numpy as np

from flambeau import ops
from flambeau.kernels import arrays
from flambeau.kernels.language.evaluate import NUMPY
from flambeau.kernels.language.expr import Expr
from flambeau.kernels.language.pointwise import GRAD
from flambeau.tensor import Tensor, wrap

# primitives whose operation has another name
RENAMED = {
    "and": "logical_and", "or": "logical_or", "xor": "logical_xor", "not": "logical_not", "rint": "round",
    "floordiv": "floor_divide", "bitand": "bitwise_and", "bitor": "bitwise_or", "bitxor": "bitwise_xor", "bitnot": "bitwise_not",
    "shl": "bitwise_left_shift", "shr": "bitwise_right_shift", "conj": "conj_physical", "add": "_add", "sub": "_sub", "div": "_div",
    "where": "_where",
}  # fmt: skip


def gradient(plan, grad: Tensor, saved: list, options: tuple) -> Tensor:
    """`plan.expr` with the gradient, the saved operands and the options in place."""
    formula = partial(_carried_out, plan, grad, saved, options)
    again = plan.of.again
    return formula() if again is None else again(formula, grad, saved)


def _carried_out(plan, grad: Tensor, saved: list, options: tuple) -> Tensor:
    known: dict = {GRAD: grad} | dict(zip(plan.uses, saved, strict=True))
    found = _value(plan.expr, known, options, grad, {})
    return found if isinstance(found, Tensor) else _constant(found, grad)


def _constant(value, grad: Tensor) -> Tensor:
    """A derivative that is one number for these options: x ** 0 does not depend on x."""
    array = arrays.empty(grad._array.shape, grad._array.dtype, grad.device)
    arrays.fill(array, value)
    return wrap(array)


def _value(expr: Expr, known: dict, options: tuple, grad: Tensor, memo: dict):
    if expr.op == "load":
        return known[expr.value]
    if expr.op == "param":
        return options[expr.value]
    if expr.op == "const":
        return expr.value
    found = memo.get(expr)
    if found is None:
        args = [_value(a, known, options, grad, memo) for a in expr.args]
        found = memo[expr] = _apply(expr.op, args, grad)
    return found


def _apply(op: str, args: list, grad: Tensor):
    if not any(isinstance(a, Tensor) for a in args):
        return _of_numbers(op, args)
    if op == "as_T":
        return args[0].to(grad.dtype)
    if op == "as_bool":
        return args[0] != 0
    if op == "conj" and not args[0].is_complex():
        return args[0]
    if op == "where" and not isinstance(args[0], Tensor):
        return args[1] if args[0] else args[2]
    found = ops.OPS[RENAMED.get(op, op)]
    if not isinstance(args[0], Tensor) and op in ("add", "mul"):
        args = args[::-1]
    if found.kind == "pointwise" and not (found.takes_numbers and (found.number_first or isinstance(args[0], Tensor))):
        args = [a if isinstance(a, Tensor) else wrap(arrays.number(a, grad._array, grad._array.dtype)) for a in args]
    return found(*args)


def _of_numbers(op: str, args: list):
    """A part of the formula that holds constants and options only is a number."""
    if op == "as_T":
        return args[0]
    with np.errstate(all="ignore"):
        value = NUMPY[op](*[np.asarray(a, None if isinstance(a, (bool, complex)) else float) for a in args])
    return value.item()
