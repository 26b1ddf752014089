"""Questions about values that decide which way an operation goes, or whether its arguments make sense."""

from __future__ import annotations


def anywhere(mask) -> bool:
    """Whether any element of a mask is true; inside vmap, any element of any sample: all samples go the same way."""
    while hasattr(mask._array, "as_tensor"):
        mask = mask._array.value
    return bool(mask.any().item())
