"""make_tensor: random values of any dtype within bounds; for the same seed the same as PyTorch's."""

from __future__ import annotations

import builtins
import math
import warnings
from typing import Any

from flambeau import dtypes
from flambeau.ops.complex import view_as_real
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import empty
from flambeau.tensor.making.random_factories import randint


def make_tensor(
    *shape: Any,
    dtype: dtypes.dtype,
    device: Any,
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """Values drawn evenly from [low, high): without bounds those of [-9, 9] that the dtype has.

    noncontiguous: with gaps between elements. exclude_zero: zeros become the smallest positive number (1 for integers).
    """
    if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
        shape = tuple(shape[0])
    if noncontiguous and memory_format is not None:
        raise ValueError(f"`noncontiguous` and `memory_format` are mutually exclusive, found {noncontiguous=} and {memory_format=}")
    if requires_grad and not (dtype.is_floating_point or dtype.is_complex):
        raise ValueError(f"`requires_grad=True` is not supported for boolean and integral dtypes, but got {dtype=}")
    gaps = noncontiguous and math.prod(shape) > 1
    size = (*shape[:-1], 2 * shape[-1]) if gaps else shape
    smallest, largest, default_low, default_high = _bounds(dtype)
    low, high = _checked(default_low if low is None else low, default_high if high is None else high, smallest, largest, dtype)
    if dtype is dtypes.bool or not (dtype.is_floating_point or dtype.is_complex):
        made = randint(math.ceil(low), math.ceil(high), size, device=device, dtype=dtype)
    elif dtype.is_complex:
        made = empty(size, dtype=dtype, device=device)
        view_as_real(made).uniform_(low, high)
    else:
        drawn = dtypes.float32 if dtype in dtypes.FLOAT8 else dtype
        made = empty(size, dtype=drawn, device=device).uniform_(low, high).to(dtype)
    if gaps:
        made = made[..., 1::2]
    elif memory_format is not None:
        made = made.clone(memory_format=memory_format)
    if exclude_zero:
        one = dtypes.finfo(dtype).tiny if dtype.is_floating_point or dtype.is_complex else 1
        made[made == 0] = one
    if requires_grad:
        made.requires_grad = True
    return made


def _bounds(dtype: dtypes.dtype) -> tuple[float, float, float, float]:
    """The least and greatest value of a dtype, and the interval that is drawn from without bounds."""
    if dtype is dtypes.bool:
        return 0, 2, 0, 2
    if dtype.is_floating_point or dtype.is_complex:
        largest = dtypes.finfo(dtype).max
        return -largest, largest, -9, 9
    info = dtypes.iinfo(dtype)
    return info.min, info.max + 1, builtins.max(info.min, -9), 10


def _checked(low: float, high: float, smallest: float, largest: float, dtype: dtypes.dtype) -> tuple[float, float]:
    if any(isinstance(bound, float) and math.isnan(bound) for bound in (low, high)):
        raise ValueError(f"`low` and `high` cannot be NaN, found {low=} and {high=}")
    if low == high and (dtype.is_floating_point or dtype.is_complex):
        words = "Passing `low==high` to `torch.testing.make_tensor` for floating or complex types is deprecated"
        warnings.warn(f"{words}: torch.full says it better", FutureWarning, stacklevel=3)
    elif low >= high:
        raise ValueError(f"`low` must be less than `high`, found {low} >= {high}")
    elif high < smallest or low >= largest:
        raise ValueError(f"The value interval [{low}, {high}) reaches beyond that of {dtype}, [{smallest}, {largest})")
    return min(max(low, smallest), largest), min(max(high, smallest), largest)
