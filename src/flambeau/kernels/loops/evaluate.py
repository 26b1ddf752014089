"""Loops on arrays, by NumPy: the reference that compiled loops are compared with, and what runs where nothing was compiled."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from flambeau.kernels import arrays
from flambeau.kernels.language import evaluate as formulas
from flambeau.kernels.language.expr import Expr
from flambeau.kernels.loops.language import EACH, LINE, ROW, SHARED, Loop

Array = Any
SUMS = {"total": (), "line_total": (-1,), "total_of_lines": (-2,)}  # over which dimensions, if not all of the row
WIDE = {"f": np.float64, "c": np.complex128}


def evaluate(loop: Loop, operands: Sequence[Array], options: Sequence[float] = ()) -> tuple[Array, ...]:
    """The value of each store. The row is the last dimension: "ri" operands are (*, n), "i" (n,) or as many, "r" (*, 1), and so are the stores.
    Rows of lines are the last two: (*, lines, places), "rj" (*, lines, 1), "r" (*, 1, 1).

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
        self.axes: tuple[int, ...] = (-2, -1) if loop.lines else (-1,)
        self.extent = prod([shape[d] for d in self.axes])

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
            return self.number(self.extent)
        if expr.op == "product":
            return self(expr.args[0]).prod(self.axes, keepdims=True, dtype=WIDE.get(self.compute.kind))
        if expr.op in ("greatest", "least"):
            return self.extreme(expr)
        if expr.op == "place":
            row, found = self(expr.args[0].args[0]), self(expr.args[0])
            return ((row == found) | (row != row)).argmax(-1, keepdims=True)
        if expr.op == "precise":
            return self(expr.args[0])
        if expr.op == "unrounded":
            return self.summed(self(expr.args[0].args[0]), self.axes, keepdims=True, rounded=False)
        if expr.op in SUMS:
            return self.summed(self(expr.args[0]), SUMS[expr.op] or self.axes, keepdims=True)
        if expr.op == "peak":
            found = self(expr.args[0])
            found = self.home.where(found == found, found, -np.inf).astype(found.dtype)  # NaN counts as nothing
            return found.max(self.axes, keepdims=True) if self.extent else found.sum(self.axes, keepdims=True)
        if expr.op == "pick":
            row = self.operands[expr.value].astype(self.compute, copy=False)
            lead = self.shape[: len(self.shape) - len(self.axes)]
            at = np.broadcast_to(self(expr.args[0]), (*lead, *(1,) * len(self.axes))).reshape(*lead, 1)
            inside = (at >= 0) & (at < self.extent)
            found = np.take_along_axis(np.broadcast_to(row, self.shape).reshape(*lead, self.extent), np.where(inside, at, 0), -1)
            return self.home.where(inside, found, np.nan).astype(found.dtype).reshape(*lead, *(1,) * len(self.axes))
        return super().value(expr)

    def extreme(self, expr: Expr) -> Array:
        """The greatest or the least; NaN, if there is one."""
        row, sign = self(expr.args[0]), -1 if expr.op == "greatest" else 1
        if not self.extent:
            ends = np.finfo(row.dtype) if row.dtype.kind == "f" else np.iinfo(row.dtype)
            nothing = (sign * np.inf if row.dtype.kind == "f" else ends.max if sign > 0 else ends.min) if expr.value is None else expr.value
            return self.home.full((*row.shape[:-1], 1), nothing, row.dtype)
        return row.max(self.axes, keepdims=True) if sign < 0 else row.min(self.axes, keepdims=True)

    def summed(self, array: Array, axes: tuple[int, ...], keepdims: bool = False, rounded: bool = True) -> Array:
        """Carried in double precision, and rounded once. What does not vary is added as often as there are places, or lines."""
        whole = (*self.shape[:-1], 1) if axes == (-2,) else self.shape
        if array.ndim < len(whole) or any([array.shape[d] != whole[d] for d in axes]):
            array = np.broadcast_to(array, whole)
        found = array.sum(axes, keepdims=keepdims, dtype=WIDE.get(array.dtype.kind))
        return found.astype(array.dtype) if rounded else found

    def stored(self, access: str, value: Expr, dtype: np.dtype) -> Array:
        found = self(value)
        if access == SHARED:
            found = self.summed(found, tuple(range(-len(self.shape), -1)))
            return found.astype(dtype)
        ones = {EACH: self.axes, LINE: (-1,), ROW: ()}[access]
        shape = tuple([1 if d - len(self.shape) in ones else n for d, n in enumerate(self.shape)])
        return found.astype(dtype) if found.shape == shape else np.broadcast_to(found, shape).astype(dtype)
