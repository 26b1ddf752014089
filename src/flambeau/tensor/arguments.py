"""What functions that make tensors, or give them another size, are given: sizes, numbers, a dtype, a device."""

from __future__ import annotations

from typing import Any

from flambeau import devices, dtypes
from flambeau.kernels import arrays


def shape_of(name: str, size: tuple) -> tuple[int, ...]:
    """The shape from zeros(2, 3) or zeros((2, 3))."""
    if not size:
        raise TypeError(f'{name}() missing 1 required positional arguments: "size"')
    if len(size) == 1 and isinstance(size[0], (tuple, list)):
        size = tuple(size[0])
    for n in size:
        if type(n) is not int or n < 0:
            break
    else:
        return size
    return tuple([n if type(n) is int and n >= 0 else _length(name, n) for n in size])


def _length(name: str, n: Any) -> int:
    if isinstance(n, bool) or not hasattr(n, "__index__"):
        raise TypeError(f"{name}(): argument 'size' (position 1) must be tuple of ints, not {type(n).__name__}")
    if n < 0:
        raise RuntimeError(f"{name}: Dimension size must be non-negative: Trying to create tensor with negative dimension {n}")
    return n.__index__()


def need_tuple(name: str, size: Any) -> tuple[int, ...]:
    """The shape, where only a sequence is taken: full(2, 3) is an error."""
    if not isinstance(size, (tuple, list)):
        raise TypeError(f"{name}(): argument 'size' must be tuple of ints, not {type(size).__name__}: write ({size},)")
    return shape_of(name, (size,))


def whole(name: str, parameter: str, value: Any, position: str = "") -> int:
    """An argument that must be an int."""
    if isinstance(value, (bool, float)) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}(): argument '{parameter}'{position} must be int, not {type(value).__name__}")
    return value.__index__()


def dtype_of(name: str, dtype: Any) -> dtypes.dtype | None:
    """The dtype= argument: a dtype, None, or one of Python's own number types."""
    if dtype is None or type(dtype) is dtypes.dtype:
        return dtype
    found = dtypes.asked(dtype)
    if not isinstance(found, dtypes.dtype):
        dtypes.refuse_unmade(dtype)
        raise TypeError(f"{name}(): argument 'dtype' must be torch.dtype, found {type(dtype).__name__}")
    return found


def device_of(device: Any) -> devices.device:
    """The device= argument; 'cuda' means the current GPU."""
    if device is None and (found := devices.get_default_device()) is devices.cpu:
        return found
    found = devices.usable(devices.resolve(device))
    if found.index is None and found.type == "cuda":
        return devices.device("cuda", arrays.cuda().current_device())
    return found if found.index is None or found.type == "cuda" else devices.device(found.type)
