"""torch._ops: the types of what is under torch.ops."""

from __future__ import annotations

from flambeau._higher_order_ops.higher_order import HigherOrderOperator
from flambeau.ops.overloads import OpOverload, OpOverloadPacket

__all__ = ["HigherOrderOperator", "OpOverload", "OpOverloadPacket"]
