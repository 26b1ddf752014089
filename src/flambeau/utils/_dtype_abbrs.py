"""torch.utils._dtype_abbrs: dtypes in a few letters, for logs. f32 is float32, bf16 bfloat16, b8 bool."""

from __future__ import annotations

import re

from flambeau import dtypes

KINDS = {"uint": "u", "int": "i", "float": "f", "complex": "c", "bfloat": "bf"}

dtype_abbrs = {dtypes.bool: "b8"}
for _dtype in (*dtypes.ALL, *dtypes.FLOAT8):
    if (_parts := re.fullmatch(r"([a-z]+)(\d.*)", _dtype.name)) is not None:
        dtype_abbrs[_dtype] = KINDS[_parts[1]] + _parts[2].replace("_", "")
