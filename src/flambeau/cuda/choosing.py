"""Which GPU is meant: an index, a name, a device, a tensor on one, or None for the current one."""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from typing import Any

from flambeau import devices
from flambeau.kernels import arrays
from flambeau.tensor import Tensor
from flambeau.tensor.memory.host_memory import cuda_device_count, cuda_is_available


@lru_cache(None)
def installed() -> bool:
    """Whether CuPy is; looking for a package that is not there takes too long to do it every time."""
    return importlib.util.find_spec("cupy") is not None


def is_available() -> bool:
    """Whether there is a GPU that can be used."""
    return installed() and cuda_is_available()


def device_count() -> int:
    """How many GPUs there are."""
    return cuda_device_count() if installed() else 0


def gpus():
    """The CUDA room, where there is a GPU. AssertionError without CuPy, RuntimeError without a GPU, as PyTorch has it."""
    room = arrays.cuda()
    room.need(None)
    return room


def index_of(device: Any) -> int:
    """The index of a GPU given as an index, a name, a device, or None for the current one."""
    room = gpus()
    if isinstance(device, Tensor):
        device = device.device
    if device is None:
        return room.current_device()
    found = devices.device(device)
    if found.type != "cuda":
        raise ValueError(f"Expected a cuda device, but got: {found}")
    index = room.current_device() if found.index is None else found.index
    room.need(index)
    return index


def is_initialized() -> bool:
    """Whether this process has used a GPU."""
    return arrays.cuda_room is not None and is_available()


def runtime_version() -> str | None:
    """The version of the CUDA that CuPy runs on, as "13.0"; None without a GPU."""
    if not is_available():
        return None
    number = gpus().runtime.runtimeGetVersion()
    return f"{number // 1000}.{number % 1000 // 10}"
