"""Products of matrices whose elements are read times scales: how the scales lie. The products themselves are kernels of GPUs, and are not here."""

from __future__ import annotations

from enum import IntEnum

from flambeau import import_only

__all__ = ["ScalingType", "SwizzleType", "scaled_grouped_mm", "scaled_mm"]


class ScalingType(IntEnum):
    """For which elements of a matrix there is one scale: all, a row, or a block of them."""

    TensorWise, RowWise, BlockWise1x16, BlockWise1x32, BlockWise1x128, BlockWise128x128 = range(6)


class SwizzleType(IntEnum):
    """In which order the scales lie."""

    NO_SWIZZLE, SWIZZLE_32_4_4 = range(2)


scaled_grouped_mm, scaled_mm = import_only.functions(
    "torch.nn.functional",
    "scaled_grouped_mm scaled_mm",
    "products of matrices in float8 are not computed. Convert them: (a.float() * scale_a) @ (b.float() * scale_b)",
)
