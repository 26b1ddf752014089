"""torch.nn._reduction: reductions by number, and those that old programs ask for by two flags. Losses written after PyTorch's import it."""

from __future__ import annotations

from flambeau import errors
from flambeau.ops.loss_reduction import by_flags, chosen

NUMBERS = {"none": 0, "mean": 1, "elementwise_mean": 1, "sum": 2}


def get_enum(reduction: str) -> int:
    """0 for "none", 1 for "mean", 2 for "sum"."""
    if reduction == "elementwise_mean":
        errors.warn("reduction='elementwise_mean' is deprecated: the same is written reduction='mean'.")
    if reduction not in NUMBERS:
        raise ValueError(f"{reduction} is not a valid value for reduction. Try 'mean', 'sum' or 'none'")
    return NUMBERS[reduction]


def legacy_get_string(size_average: bool | None, reduce: bool | None, emit_warning: bool = True) -> str:
    """The reduction that two flags mean: "none", "sum" or "mean"."""
    flags = size_average is None or bool(size_average), reduce is None or bool(reduce)
    return chosen("mean", *flags) if emit_warning else by_flags(*flags)


def legacy_get_enum(size_average: bool | None, reduce: bool | None, emit_warning: bool = True) -> int:
    """The same as a number."""
    return get_enum(legacy_get_string(size_average, reduce, emit_warning))
