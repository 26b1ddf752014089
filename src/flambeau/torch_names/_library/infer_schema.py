"""torch._library.infer_schema"""

from flambeau.library.inference import SUPPORTED_PARAM_TYPES, SUPPORTED_RETURN_TYPES, infer_schema, tuple_to_list

__all__ = ["SUPPORTED_PARAM_TYPES", "SUPPORTED_RETURN_TYPES", "infer_schema", "tuple_to_list"]
