"""torch._higher_order_ops: operations that take functions."""

from __future__ import annotations

from flambeau._higher_order_ops.associative_scan import associative_scan
from flambeau._higher_order_ops.higher_order import HigherOrderOperator
from flambeau.control_flow import cond, while_loop

__all__ = ["HigherOrderOperator", "associative_scan", "cond", "while_loop"]
