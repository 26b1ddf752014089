"""torch.accelerator: the GPU, whoever made it; here that is CUDA or nothing.

>>> device = current_accelerator() or "cpu"
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from flambeau import cpu, cuda
from flambeau.devices import device as Device

__all__ = [
    "current_accelerator", "current_device_idx", "current_device_index", "current_stream", "device_count", "device_index", "empty_cache",
    "get_device_capability", "get_memory_info", "is_available", "max_memory_allocated", "max_memory_reserved", "memory_allocated",
    "memory_reserved", "memory_stats", "reset_peak_memory_stats", "set_device_idx", "set_device_index", "set_stream", "synchronize",
]  # fmt: skip


def is_available() -> bool:
    """Whether there is a GPU that can be used."""
    return cuda.is_available()


def device_count() -> int:
    """How many GPUs there are."""
    return cuda.device_count()


def current_accelerator(check_available: bool = False) -> Device | None:
    """The type of accelerator this installation computes on: device("cuda"), or None."""
    return Device("cuda") if cuda.is_available() else None


def _needed(device: Any = None) -> Any:
    """The device, where there is a GPU."""
    if not cuda.is_available():
        raise RuntimeError("there is no accelerator: none is available.")
    return device


def current_device_index() -> int:
    """The index of the GPU in use."""
    _needed()
    return cuda.current_device()


def set_device_index(device: Any, /) -> None:
    """Choose the GPU to use from now on."""
    cuda.set_device(_needed(device))


current_device_idx, set_device_idx = current_device_index, set_device_index


def device_index(device: int | None, /) -> cuda.device:
    """The GPU to use within a `with`; None changes nothing."""
    return cuda.device(device)


def current_stream(device: Any = None, /) -> Any:
    """The stream that work goes to now."""
    return cuda.current_stream(_needed(device))


def set_stream(stream: Any) -> None:
    """Send work to this stream from now on."""
    _needed()
    cuda.set_stream(stream)


def synchronize(device: Any = None, /) -> None:
    """Wait until a GPU has done everything it was asked to."""
    cuda.synchronize(_needed(device))


def get_device_capability(device: Any = None, /) -> dict[str, Any]:
    """What a GPU can do."""
    return {"capability": cuda.get_device_capability(_needed(device))}


def get_memory_info(device_index: Any = None, /) -> tuple[int, int]:
    """(free, total) bytes of a GPU."""
    return cuda.mem_get_info(_needed(device_index))


empty_cache = cuda.empty_cache
memory_allocated, max_memory_allocated = cuda.memory_allocated, cuda.max_memory_allocated
memory_reserved, max_memory_reserved = cuda.memory_reserved, cuda.max_memory_reserved
memory_stats, reset_peak_memory_stats = cuda.memory_stats, cuda.reset_peak_memory_stats


def get_device_module(device: Any = None) -> ModuleType:
    """The module of a device: torch.cuda or torch.cpu. None: that of the accelerator, if there is one."""
    kind = (current_accelerator() or Device("cpu")).type if device is None else Device(device).type
    modules = {"cuda": cuda, "cpu": cpu}
    if kind not in modules:
        raise RuntimeError(f"Invalid module name for device {kind!r}: there are cpu and cuda here")
    return modules[kind]
