"""torch._higher_order_ops.cond: a branch as a function, and the object that modes are told of."""

from __future__ import annotations

from flambeau._higher_order_ops.higher_order import cond_op
from flambeau.control_flow import cond

__all__ = ["cond", "cond_op"]
