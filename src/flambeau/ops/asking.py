"""Questions about values that decide which way an operation goes, or whether its arguments make sense."""

from __future__ import annotations

from collections.abc import Callable

# The tensor layer says of this thread,
recording: Callable[[], bool] = bool  # whether operations are recorded,
is_watched: Callable[[], bool] = bool  # and whether somebody wants to see the operations that others are made of.


def is_recorded(*tensors) -> bool:
    """Whether backward may ask for a derivative by one of these."""
    return recording() and any([t is not None and t.requires_grad for t in tensors])


def anywhere(mask) -> bool:
    """Whether any element of a mask is true; inside vmap, any element of any sample: all samples go the same way.

    Of a tensor without data nothing is known: it is taken to hold what is usual, and nothing that is wrong."""
    mask = of_all_samples(mask)
    if hasattr(mask, "fake_mode"):
        return False
    return not mask.is_meta and bool(mask.any().item())


def geometry(tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(shape, strides in elements)."""
    return tuple(tensor.shape), tensor.stride()


def of_all_samples(tensor):
    """The tensor itself; inside vmap, the one that holds all samples."""
    while hasattr(tensor._array, "as_tensor") and not hasattr(tensor._array, "owner"):  # the latter answers for itself
        tensor = tensor._array.value
    return tensor
