"""The files that attach methods to Tensor when they are imported."""

# ruff: noqa: F401

from flambeau.tensor import (
    dense_only,
    host_memory,
    inplace_views,
    matrix_views,
    pickling,
    protocols,
    subclass,
    typed_storage,
    untyped_storage,
)
