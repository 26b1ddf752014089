"""Loops on arrays, by NumPy: the reference that compiled loops are compared with, and what runs where nothing was compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from flambeau.kernels import arrays
from flambeau.kernels.language import evaluate as formulas
from flambeau.kernels.language.expr import Expr
from flambeau.kernels.loops.language import EACH, ROW, SHARED, Loop

Array = Any
WIDE = {"f": np.float64, "c": np.complex128}


def evaluate(loop: Loop, operands: Sequence[Array], options: Sequence[float] = ()) -> tuple[Array, ...]:
    """The value of each store. The row is the last dimension: "ri" operands are (*, n), "i" (n,) or as many, "r" (*, 1), and so are the stores.

    Half precision is computed in float32; results are of the dtype of the first rows.
    """
    first = next(a for a, access in zip(operands, loop.loads, strict=True) if access == ROW)
    compute = np.dtype(np.float32) if first.dtype.itemsize == 2 else first.dtype
    walk = _Evaluation(loop, operands, options, compute, first.shape)
    with np.errstate(all="ignore"):
        dtypes = [compute if kind == "wide" else first.dtype for kind in loop.store_kinds]
        return tuple([walk.stored(*item) for item in zip(loop.stores, loop.values, dtypes, strict=True)])


class _Evaluation(formulas._Evaluation):
    def __init__(self, loop: Loop, operands, options, compute: np.dtype, shape: tuple[int, ...]):
        super().__init__(operands, options, compute)
        self.loop, self.shape, self.home = loop, shape, arrays.module_of(operands[0])

    def __call__(self, expr: Expr) -> Array:
        found = super().__call__(expr)
        if self.home is not np and type(found) is np.ndarray:  # a number, beside arrays on a GPU
            found = self.known[expr] = self.home.asarray(found)
        return found

    def value(self, expr: Expr) -> Array:
        if expr.op == "position":
            return np.arange(self.shape[-1])
        if expr.op == "param" and expr.kind == "i64":
            return np.asarray(int(self.params[expr.value]))
        if expr.op == "extent":
            return self.number(self.shape[-1])
        if expr.op == "product":
            return self(expr.args[0]).prod(-1, keepdims=True, dtype=WIDE.get(self.compute.kind))
        if expr.op in ("greatest", "least"):
            return self.extreme(expr)
        if expr.op == "place":
            row, found = self(expr.args[0].args[0]), self(expr.args[0])
            return ((row == found) | (row != row)).argmax(-1, keepdims=True)
        if expr.op == "precise":
            return self(expr.args[0])
        if expr.op == "total":
            return self.summed(self(expr.args[0]), -1)
        if expr.op == "peak":
            found = self(expr.args[0])
            found = self.home.where(found == found, found, -np.inf).astype(found.dtype)  # NaN counts as nothing
            return found.max(-1, keepdims=True) if self.shape[-1] else found.sum(-1, keepdims=True)
        if expr.op == "pick":
            row = self.operands[expr.value].astype(self.compute, copy=False)
            at = np.broadcast_to(self(expr.args[0]), (*self.shape[:-1], 1))
            inside = (at >= 0) & (at < self.shape[-1])
            found = np.take_along_axis(np.broadcast_to(row, self.shape), np.where(inside, at, 0), -1)
            return self.home.where(inside, found, np.nan).astype(found.dtype)
        return super().value(expr)

    def extreme(self, expr: Expr) -> Array:
        """The greatest or the least; NaN, if there is one."""
        row, sign = self(expr.args[0]), -1 if expr.op == "greatest" else 1
        if not self.shape[-1]:
            ends = np.finfo(row.dtype) if row.dtype.kind == "f" else np.iinfo(row.dtype)
            nothing = (sign * np.inf if row.dtype.kind == "f" else ends.max if sign > 0 else ends.min) if expr.value is None else expr.value
            return self.home.full((*row.shape[:-1], 1), nothing, row.dtype)
        return row.max(-1, keepdims=True) if sign < 0 else row.min(-1, keepdims=True)

    def summed(self, array: Array, axis) -> Array:
        """Carried in double precision, and rounded once. What does not vary is added as often as there are places."""
        array = array if array.ndim and array.shape[-1] == self.shape[-1] else np.broadcast_to(array, self.shape)
        return array.sum(axis, keepdims=axis == -1, dtype=WIDE.get(array.dtype.kind)).astype(array.dtype)

    def stored(self, access: str, value: Expr, dtype: np.dtype) -> Array:
        found = self(value)
        if access == SHARED:
            found = self.summed(found, tuple(range(len(self.shape) - 1)))
            return found.astype(dtype)
        shape = (*self.shape[:-1], 1) if access == EACH else self.shape
        return found.astype(dtype) if found.shape == shape else np.broadcast_to(found, shape).astype(dtype)
