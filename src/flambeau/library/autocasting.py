"""Operators that programs define, inside autocast: register_autocast says to which dtype their floating-point arguments are cast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau import dtypes
from flambeau.eager.autocast import suspended
from flambeau.library.keys import of_device
from flambeau.operators.overloads import OpOverload
from flambeau.tensor import Tensor

__all__ = ["autocast_kernel"]


def autocast_kernel(overload: OpOverload, device_type: Any, cast_inputs: Any) -> tuple[str, Callable[..., Any]]:
    """(key, what runs for it)."""
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    key = f"Autocast{of_device(device_type)}"
    if device_type not in ("cpu", "cuda"):
        raise ValueError(f"Unknown device type: {device_type}. Autocast is for 'cpu' and 'cuda'")

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with suspended():
            return overload(*cast(args, device_type, cast_inputs), **cast(kwargs, device_type, cast_inputs))

    return key, kernel


def cast(value: Any, device_type: str, dtype: dtypes.dtype) -> Any:
    """The value, floating-point tensors of the device in it as this dtype (those of float64 stay)."""
    if isinstance(value, Tensor):
        eligible = value.is_floating_point() and value.device.type == device_type and value.dtype is not dtypes.float64
        return value.to(dtype) if eligible else value
    if isinstance(value, dict):
        return {k: cast(v, device_type, dtype) for k, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)([cast(v, device_type, dtype) for v in value])
    return value
