"""torch._custom_op: the older way to define operators. See library/older.py."""

from flambeau._custom_op import impl

__all__ = ["impl"]
