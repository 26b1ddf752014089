"""What NVIDIA's management library (NVML, which comes with the driver) says of a GPU: how busy it is, how warm, and who uses it."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

from flambeau.cuda.choosing import gpus, index_of

__all__ = ["clock_rate", "device_memory_used", "list_gpu_processes", "memory_usage", "power_draw", "temperature", "utilization"]

LIBRARY = "libnvidia-ml.so.1"
CORE_TEMPERATURE, CLOCK_OF_MULTIPROCESSORS, TOO_SMALL = 0, 1, 7  # NVML_TEMPERATURE_GPU, NVML_CLOCK_SM, NVML_ERROR_INSUFFICIENT_SIZE


class Rates(ctypes.Structure):
    """nvmlUtilization_t: percent of the last moments in which kernels ran, and in which memory was read or written."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class Memory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class Process(ctypes.Structure):
    """nvmlProcessInfo_t."""

    _fields_ = (("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("instance", ctypes.c_uint), ("compute", ctypes.c_uint))


@lru_cache(1)
def _nvml() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as problem:
        raise ModuleNotFoundError(f"{LIBRARY} is not there: it comes with NVIDIA's driver") from problem
    if library.nvmlInit_v2():
        raise RuntimeError("NVML does not answer: the driver and its library do not fit, or there is no permission")
    return library


def _ask(name: str, device: Any, *args: Any, fine: tuple[int, ...] = (0,)) -> int:
    """A question about a GPU, which is found by where it is plugged in: NVML does not count as CUDA does."""
    index = index_of(device)
    handle, place = ctypes.c_void_p(), gpus().runtime.deviceGetPCIBusId(index)
    status = _nvml().nvmlDeviceGetHandleByPciBusId_v2(place.encode() if isinstance(place, str) else place, ctypes.byref(handle))
    status = status or getattr(_nvml(), name)(handle, *args)
    if status not in fine:
        raise RuntimeError(f"{name} gave {status}")
    return status


def _number(name: str, device: Any, *args: Any) -> int:
    found = ctypes.c_uint()
    _ask(name, device, *args, ctypes.byref(found))
    return found.value


def utilization(device: Any = None) -> int:
    """Percent of the last moments in which a kernel ran."""
    found = Rates()
    _ask("nvmlDeviceGetUtilizationRates", device, ctypes.byref(found))
    return found.gpu


def memory_usage(device: Any = None) -> int:
    """Percent of the last moments in which memory was read or written."""
    found = Rates()
    _ask("nvmlDeviceGetUtilizationRates", device, ctypes.byref(found))
    return found.memory


def device_memory_used(device: Any = None) -> int:
    """Bytes in use, of all processes."""
    found = Memory()
    _ask("nvmlDeviceGetMemoryInfo", device, ctypes.byref(found))
    return found.used


def temperature(device: Any = None) -> int:
    """Degrees Celsius."""
    return _number("nvmlDeviceGetTemperature", device, CORE_TEMPERATURE)


def power_draw(device: Any = None) -> int:
    """Milliwatts."""
    return _number("nvmlDeviceGetPowerUsage", device)


def clock_rate(device: Any = None) -> int:
    """MHz of the multiprocessors."""
    return _number("nvmlDeviceGetClockInfo", device, CLOCK_OF_MULTIPROCESSORS)


def list_gpu_processes(device: Any = None) -> str:
    """Who uses a GPU, and how much of its memory, in lines."""
    count = ctypes.c_uint(64)
    found = (Process * count.value)()
    _ask("nvmlDeviceGetComputeRunningProcesses_v3", device, ctypes.byref(count), found, fine=(0, TOO_SMALL))
    lines = [f"GPU:{index_of(device)}"]
    lines += [f"process {p.pid:>10d} uses {p.used / 2**20:>12.3f} MB GPU memory" for p in found[: min(count.value, 64)]]
    return "\n".join(lines if len(lines) > 1 else [*lines, "no processes are running"])
