"""Comparing whole tensors."""

from __future__ import annotations

from flambeau import dtypes
from flambeau.ops.declare import composite


@composite
def isclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Whether |input - other| <= atol + rtol * |other|. Infinities are close to themselves only, NaN is if `equal_nan`."""
    check_same_dtype("isclose", input, other)
    for name, tolerance in (("rtol", rtol), ("atol", atol)):
        if hasattr(tolerance, "_array") and tolerance.requires_grad:
            raise TypeError(f"isclose(): argument '{name}' must be float, not a Tensor that requires grad")
        if tolerance < 0:
            raise RuntimeError(f"{name} must not be negative, found {tolerance}")
    close = input == other
    if equal_nan and input.dtype.category >= dtypes.FLOAT:
        close = close | ((input != input) & (other != other))
    if rtol == 0 and atol == 0:
        return close
    if input.dtype.category < dtypes.FLOAT:
        input, other = input.double(), other.double()  # so that differences do not wrap around
    difference = (input - other).abs()
    return close | (difference.isfinite() & (difference <= atol + (rtol * other).abs()))


@composite
def allclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Whether all elements are close: see isclose. A Python bool."""
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


@composite
def equal(input, other):
    """Whether both have the same shape and the same elements. A Python bool; NaN equals nothing."""
    if input.device != other.device:
        raise RuntimeError(f"Expected all tensors to be on the same device, but found two devices, {input.device} and {other.device}!")
    return input.shape == other.shape and bool((input == other).all())


def check_same_dtype(name: str, input, other) -> None:
    """RuntimeError unless both have one dtype."""
    if input.dtype is not other.dtype:
        raise RuntimeError(f"{name}: {input.dtype} did not match {other.dtype}. Try other.to(input.dtype)")
