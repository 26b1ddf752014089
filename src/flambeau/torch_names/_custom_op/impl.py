"""torch._custom_op.impl"""

from flambeau.library.inference import infer_schema
from flambeau.library.older import (
    RESERVED_NS,
    SUPPORTED_DEVICE_TYPE_TO_KEY,
    CustomOp,
    found_or_made,
    get_op,
    global_registry,
    parse_qualname,
    validate_function_matches_schema,
    validate_namespace,
    validate_schema,
)
from flambeau.library.older import custom_op_of_impl as custom_op
from flambeau.library.registering import get_ctx

__all__ = [
    "RESERVED_NS", "SUPPORTED_DEVICE_TYPE_TO_KEY", "CustomOp", "custom_op", "get_ctx", "get_op", "global_registry", "infer_schema",
    "parse_qualname", "validate_function_matches_schema", "validate_namespace", "validate_schema",
]  # fmt: skip

_find_custom_op = custom_op_from_existing = found_or_made
