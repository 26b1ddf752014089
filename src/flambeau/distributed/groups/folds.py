"""What the reductions do with the arrays of all ranks: `fold(parts, out)`, in the order of ranks, so that all ranks find the same bits.

Half precision is summed in float32 and rounded once.

>>> out = np.empty(2, np.float32)
>>> fold_of(ReduceOp(ReduceOp.MAX), out.dtype)([np.float32([1, 5]), np.float32([3, 2])], out)
>>> out
array([3., 5.], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from flambeau.distributed.mpi.transfers import Fold
from flambeau.distributed.reduce_op import RedOpType, ReduceOp

STEPS: dict[RedOpType, np.ufunc] = {
    RedOpType.SUM: np.add,
    RedOpType.AVG: np.add,
    RedOpType.PREMUL_SUM: np.add,
    RedOpType.PRODUCT: np.multiply,
    RedOpType.MIN: np.minimum,
    RedOpType.MAX: np.maximum,
    RedOpType.BAND: np.bitwise_and,
    RedOpType.BOR: np.bitwise_or,
    RedOpType.BXOR: np.bitwise_xor,
}
BITWISE = (RedOpType.BAND, RedOpType.BOR, RedOpType.BXOR)
COUNTING = (RedOpType.MIN, RedOpType.MAX)


def fold_of(op: ReduceOp, dtype: np.dtype) -> Fold:
    """The fold of arrays of this dtype."""
    return _fold(op.op, dtype)


@cache
def _fold(kind: RedOpType, dtype: np.dtype) -> Fold:
    step = STEPS[kind]
    floating = dtype.kind not in "biu"  # ml_dtypes' have kinds of their own
    if kind in BITWISE and floating:
        raise RuntimeError(f"Cannot use ReduceOp.{kind.name} with {dtype}: it works on bits of integers and bools")
    if kind in COUNTING and dtype.kind == "c":
        raise ValueError(f"ReduceOp.{kind.name}: complex numbers have no order")
    wide = np.dtype(np.float32) if floating and dtype.itemsize <= 2 and kind not in COUNTING else None

    def fold(parts: Sequence[np.ndarray], out: np.ndarray) -> None:
        total = parts[0] if wide is None else parts[0].astype(wide)
        for place, part in enumerate(parts[1:], 2):
            last = place == len(parts) and wide is None
            total = step(total, part if wide is None else part.astype(wide), out=out if last else None)
        if kind is RedOpType.AVG:
            total = total / len(parts) if floating else total // len(parts)
        if total is not out:
            out[...] = total

    return fold


def premultiplied(op: ReduceOp, array: np.ndarray) -> np.ndarray:
    """What this rank brings to the fold: its array, or for PREMUL_SUM a multiple of it."""
    if op.op is not RedOpType.PREMUL_SUM:
        return array
    factor: Any = op.factor
    scale = factor.item() if hasattr(factor, "item") and factor.numel() == 1 else getattr(factor, "_array", factor)
    if array.dtype.kind in "biu" and not float(np.max(scale)).is_integer():
        raise RuntimeError(f"ReduceOp.PREMUL_SUM: a factor of {scale} and tensors of {array.dtype} have no product of that dtype")
    return np.multiply(array, scale, dtype=np.float32 if array.itemsize <= 2 else None).astype(array.dtype)
