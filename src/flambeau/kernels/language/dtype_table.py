"""The dtypes as the C side sees them: an enum, their sizes and names."""

from __future__ import annotations

from flambeau.kernels.language.print_c import ENUM

# FL_ name -> (name, bytes, NumPy's number or -1, category: 0 bool, 1 integer, 2 real, 3 complex)
DTYPES = {
    "FL_BOOL": ("bool", 1, "NPY_BOOL", 0),
    "FL_U8": ("uint8", 1, "NPY_UINT8", 1),
    "FL_I8": ("int8", 1, "NPY_INT8", 1),
    "FL_I16": ("int16", 2, "NPY_INT16", 1),
    "FL_I32": ("int32", 4, "NPY_INT32", 1),
    "FL_I64": ("int64", 8, "NPY_INT64", 1),
    "FL_F16": ("float16", 2, "NPY_FLOAT16", 2),
    "FL_BF16": ("bfloat16", 2, "-1", 2),  # ml_dtypes registers it when it is imported
    "FL_F32": ("float32", 4, "NPY_FLOAT32", 2),
    "FL_F64": ("float64", 8, "NPY_FLOAT64", 2),
    "FL_C64": ("complex64", 8, "NPY_COMPLEX64", 3),
    "FL_C128": ("complex128", 16, "NPY_COMPLEX128", 3),
}
assert all(DTYPES[enum][0] == name for name, enum in ENUM.items())
