"""torch._higher_order_ops: operations that take functions."""

from __future__ import annotations

from flambeau._higher_order_ops.associative_scan import associative_scan
from flambeau.control_flow import cond, while_loop

__all__ = ["associative_scan", "cond", "while_loop"]
