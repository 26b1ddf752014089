"""torch._library.custom_ops"""

from flambeau.library.custom_op import OPDEFS, CustomOpDef, custom_op, increment_version, log, opdef_of

__all__ = ["OPDEFS", "CustomOpDef", "custom_op", "increment_version", "log"]

_maybe_get_opdef = opdef_of
