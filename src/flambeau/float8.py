"""Floats of eight bits: stored, moved, compared and converted; nothing computes with them. Their arrays are ml_dtypes'.

Every number of eight bits is a float32, and every conversion to one begins with a float32. Then it is rounded to nearest, ties to even; what
is too large becomes

    e4m3fn          the largest number, infinity too: there is none
    e5m2            infinity
    e4m3fnuz, e5m2fnuz                NaN, of which there is one, in the place of -0
    e8m0fnu         NaN. It is an exponent alone: the sign is lost, and zero is the smallest power of two
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flambeau import dtypes

SORTS = frozenset(d.numpy for d in dtypes.FLOAT8)
CHARS = frozenset(d.numpy.char for d in dtypes.FLOAT8)  # by which NumPy's dtypes are told apart quickly


def decoded(array: np.ndarray) -> np.ndarray:
    """The same numbers as float32."""
    with np.errstate(invalid="ignore"):
        numbers = array.astype(np.float32)
    if dtypes.OF_NUMPY[array.dtype].name.endswith("uz"):  # whose one NaN, in the place of -0, has no sign
        numbers[np.isnan(numbers)] = np.nan
    return numbers


def encoded(numbers: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Numbers of float32, rounded to eight bits."""
    with np.errstate(all="ignore"):
        return ROUNDED.get(dtypes.OF_NUMPY[dtype].name, np.ndarray.astype)(numbers, dtype)


def _e4m3fn(numbers: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return np.clip(numbers, np.float32(-448), np.float32(448)).astype(dtype)  # NaN stays NaN


def _e5m2(numbers: np.ndarray, dtype: np.dtype) -> np.ndarray:
    bits = numbers.astype(dtype).view(np.uint8)
    bits[np.isnan(numbers)] |= 0x7F
    return bits.view(dtype)


def _e8m0fnu(numbers: np.ndarray, dtype: np.dtype) -> np.ndarray:
    bits = np.ascontiguousarray(numbers).view(np.uint32)
    exponent = (bits >> 23 & 0xFF).astype(np.uint8)
    rest = bits & 0x7FFFFF
    half = 1 << 22
    up = (rest > half) | ((rest == half) & (exponent > 0))
    return (exponent + (up & (exponent < 0xFF))).astype(np.uint8).view(dtype).reshape(numbers.shape)


ROUNDED: dict[str, Callable] = {"float8_e4m3fn": _e4m3fn, "float8_e5m2": _e5m2, "float8_e8m0fnu": _e8m0fnu}
