"""torch._custom_ops: the older way to define operators. See library/older.py."""

from flambeau.library.older import _destroy, custom_op, impl, impl_abstract, impl_backward, impl_save_for_backward

__all__ = ["_destroy", "custom_op", "impl", "impl_abstract", "impl_backward", "impl_save_for_backward"]
