"""Looking at values: whether two tensors are equal, or one has something in it."""

from __future__ import annotations

from typing import Any

from flambeau import modes
from flambeau.distributed.tensor.rules import COMPOSED
from flambeau.ops import OPS


def _equal(input: Any, other: Any) -> bool:
    """Whether all ranks' pieces are equal: one bool for all of them."""
    if tuple(input.shape) != tuple(other.shape):
        return False
    with modes.no_grad():
        return bool(OPS["_all"](OPS["eq"](input, other), tuple(range(input.dim())), False, None))


def _allclose(input: Any, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    with modes.no_grad():
        close = OPS["isclose"](input, other, rtol, atol, equal_nan)
        return bool(OPS["_all"](close, tuple(range(close.dim())), False, None))


COMPOSED["equal"] = _equal
COMPOSED["allclose"] = _allclose
