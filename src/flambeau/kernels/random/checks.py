"""What samplers are asked for, checked: which dtypes they know, which numbers fit into them, and what is refused, as by PyTorch."""

from __future__ import annotations

import math
import warnings
from functools import cache, lru_cache

import numpy as np

from flambeau.kernels.reductions import folding

# -- dtypes --------------------------------------------------------------------------------------------------------------

MANTISSA = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}  # bits, the hidden one included
PLAIN_INTEGERS = ("uint8", "int8", "int16", "int32", "int64")  # the wider unsigned ones came late, few samplers know them
WITH_INTEGERS = frozenset(("bool", *PLAIN_INTEGERS, *MANTISSA))
_EXPONENT = {"bfloat16": 127, "float16": 15, "float32": 127, "float64": 1023}
_LARGEST = {name: (2 - 2.0 ** (1 - MANTISSA[name])) * 2.0**exponent for name, exponent in _EXPONENT.items()}


name_of = cache(lambda dtype: dtype.name)  # NumPy works it out anew every time, which takes longer than a small sample


INT32, INT64, FLOAT32, FLOAT64 = map(np.dtype, ("int32", "int64", "float32", "float64"))


def opmath_of(dtype: np.dtype) -> np.dtype:
    """The dtype the arithmetic happens in: float32 for half precision."""
    return FLOAT64 if dtype == FLOAT64 else FLOAT32


def rounded_to(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """To `dtype`; to half precision by way of float32, which rounds twice, as PyTorch does."""
    if dtype == values.dtype:
        return values
    with np.errstate(over="ignore", invalid="ignore"):
        if name_of(dtype) in ("bfloat16", "float16"):
            values = values.astype(np.float32)
        return values.astype(dtype)


# -- checks --------------------------------------------------------------------------------------------------------------


def need_floating(name: str, dtype: np.dtype, error: type[Exception] = NotImplementedError) -> None:
    if name_of(dtype) not in MANTISSA:
        raise error(f"{name}: the samples are real numbers, so the dtype must be floating point, but found {name_of(dtype)}; try x.float()")


_lowest, _highest = folding.whole("min"), folding.whole("max")


def within_one(p: np.ndarray) -> bool:
    """Whether all elements lie in [0, 1]. A NaN does not."""
    low = _lowest(p)
    if low is not NotImplemented:  # a fifth of the time that NumPy takes
        return low.item() >= 0 and _highest(p).item() <= 1
    return bool(np.minimum.reduce(p, None) >= 0 and np.maximum.reduce(p, None) <= 1)


def _all(condition: bool | np.ndarray) -> bool:
    return condition if isinstance(condition, bool) else bool(condition.all())


def check_std(std: float | np.ndarray) -> None:
    if isinstance(std, np.ndarray) and std.dtype.kind == "c":
        raise RuntimeError("normal: the standard deviation must be real, but found a complex one")
    if not _all(std >= 0):
        which = "all elements of std >= 0.0" if isinstance(std, np.ndarray) else "std >= 0.0"
        raise RuntimeError(f"normal expects {which}, but found std {np.min(std)}")


def check_uniform_range(dtype: np.dtype, low: float, high: float) -> None:
    largest = _LARGEST[name_of(dtype)]
    if low > high:
        raise RuntimeError(f"uniform_ expects to return numbers of the range [from, to), but found from={low} > to={high}")
    if not (abs(low) <= largest and abs(high) <= largest and high - low <= largest):
        what = f"to-from, and each of them, to be no larger than the largest {name_of(dtype)}, {largest:g}"
        raise RuntimeError(f"uniform_ expects {what}, but found from={low}, to={high}")


def integer_range(dtype: np.dtype, low: int, high: int | None) -> tuple[int, int]:
    """(low, number of values) for `randint`, after PyTorch's checks and, for floats, its correction of the ends."""
    low, span, doubts = _checked_range(dtype, low, high)
    for doubt in doubts:
        warnings.warn(doubt, stacklevel=3)
    return low, span


@lru_cache(256)
def _checked_range(dtype: np.dtype, low: int, high: int | None) -> tuple[int, int, list[str]]:
    """The same, and what to warn of."""
    doubts = []
    smallest, largest, digits = integer_limits(dtype)
    if high is not None and low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    if digits:
        low = _inside(low, 1, dtype)
        end = 2**digits if high is None else _inside(high, -1, dtype)
        if low >= end:
            raise RuntimeError(f"randint: no {name_of(dtype)} lies between low and high, once they are rounded to it: {low} and {end}")
        end += high is None
    else:
        end = int(largest) + 1 if high is None else high
    for name, bound in (("from", low), ("to - 1", end - 1)):
        if not smallest <= bound <= min(largest, 2**63 - 1):  # PyTorch counts in int64: the upper half of uint64 is out of reach
            raise RuntimeError(f"{name} is out of bounds for {name_of(dtype)}, which holds {smallest} to {largest}: found {bound}")
        if digits and abs(bound) > 2**digits:
            doubts.append(
                f"{name} is out of bounds [-(2^{digits}), 2^{digits}], from where on {name_of(dtype)} skips integers: of {bound} some cannot occur"
            )
    return low, end - low, doubts


@cache
def integer_limits(dtype: np.dtype) -> tuple[float, float, int]:
    """(smallest, largest, bits of the mantissa or 0) of a dtype that can hold integers."""
    if name_of(dtype) in MANTISSA:
        return -_LARGEST[name_of(dtype)], _LARGEST[name_of(dtype)], MANTISSA[name_of(dtype)]
    if dtype.kind == "b":
        return 0, 1, 0
    if dtype.kind in "iu":
        return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max), 0
    error = NotImplementedError if name_of(dtype).startswith("float8") else RuntimeError
    raise error(f"randint: the dtype must be integer, floating point or bool, but found {name_of(dtype)}")


def _inside(bound: int, step: int, dtype: np.dtype) -> int:
    """A bound of the range, or the next float inwards (in the direction `step`) if its neighbour there does not round to the inside."""
    neighbour = bound + step
    with np.errstate(over="ignore"):
        stored = float(rounded_to(np.array(neighbour, opmath_of(dtype)), dtype))
    whole = int(stored) if -(2.0**63) <= stored < 2.0**63 else -(2**63)  # a cast to int64 gives that for what is beyond
    if whole >= bound if step > 0 else whole < bound:
        return bound
    return whole + step * 2 ** max(abs(neighbour).bit_length() - MANTISSA[name_of(dtype)], 0)


def check_permutation(n: int, dtype: np.dtype) -> None:
    if n < 0:
        raise RuntimeError(f"randperm: n must not be negative, but found n={n}")
    if name_of(dtype) in MANTISSA:
        # bfloat16 has no limit in PyTorch; its larger numbers simply coincide.
        limit = 2**63 if name_of(dtype) == "bfloat16" else 2 ** MANTISSA[name_of(dtype)] + 1
    elif name_of(dtype) in PLAIN_INTEGERS:
        limit = int(np.iinfo(dtype).max) + 1
    else:
        raise NotImplementedError(f"randperm: not available for {name_of(dtype)}; try int64")
    if n > limit:
        raise RuntimeError(f"randperm: {name_of(dtype)} can tell at most {limit} numbers apart, but found n={n}; try int64")


def check_multinomial(probs: np.ndarray, num_samples: int, replacement: bool) -> None:
    if name_of(probs.dtype) not in MANTISSA:
        raise RuntimeError(f"multinomial: the weights must be floating point, but found {name_of(probs.dtype)}")
    if probs.ndim not in (1, 2):
        raise RuntimeError(f"multinomial: the weights must have shape (C,) or (R, C), but found {probs.shape}")
    if num_samples <= 0:
        raise RuntimeError(f"multinomial: num_samples must be 1 or more, but found {num_samples}")
    categories = probs.shape[-1]
    if not replacement and num_samples > categories:
        raise RuntimeError(
            f"cannot sample n_sample > prob_dist.size(-1) samples: {num_samples} of {categories} categories, each once. Try "
            "replacement=True"
        )
    if categories == 0:
        raise RuntimeError(f"multinomial: there is no category to draw from, the weights have shape {probs.shape}")
    total = np.add.reduce(probs, -1, opmath_of(probs.dtype))
    if np.minimum.reduce(probs, None, initial=0) >= 0 and (
        0 < total.item() < math.inf if total.size == 1 else np.isfinite(total).all() and total.all()
    ):
        return
    finite = np.isfinite(probs)
    if not (finite & (probs >= 0)).all():
        found = "negative" if finite.all() else "infinite or nan"
        raise RuntimeError(f"multinomial: probability tensor contains either `inf`, `nan` or element < 0: some are {found}")
    if not (total > 0).all():
        raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0): nothing can be drawn from a row of zeros")
