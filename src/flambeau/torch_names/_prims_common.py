"""torch._prims_common: questions about strides, for libraries that lay tensors out themselves."""

from __future__ import annotations

from collections.abc import Sequence

from flambeau.kernels import layout
from flambeau.ops import formats
from flambeau.tensor import Tensor

__all__ = ["make_contiguous_strides_for", "suggest_memory_format"]


def make_contiguous_strides_for(shape: Sequence[int], row_major: bool = True) -> tuple[int, ...]:
    """The strides of elements that lie in the order of their indices; with row_major=False, each of the matrices by columns.

    >>> make_contiguous_strides_for((2, 3, 4)), make_contiguous_strides_for((2, 3, 4), row_major=False)
    ((12, 4, 1), (12, 1, 3))
    """
    if any(n < 0 for n in shape):
        raise ValueError(f"sizes are not negative, found {tuple(shape)}")
    steps = layout.contiguous_strides(tuple(shape))
    return steps if row_major or len(shape) < 2 else (*steps[:-2], 1, max(shape[-2], 1))


def suggest_memory_format(x: Tensor) -> formats.memory_format:
    """The format whose strides a tensor has: channels last, if it says so, or else contiguous."""
    for format in (formats.channels_last, formats.channels_last_3d):
        if x.dim() == (4 if format is formats.channels_last else 5) and x.is_contiguous(memory_format=format) and not x.is_contiguous():
            return format
    return formats.contiguous_format
