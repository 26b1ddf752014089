"""torch.cpu: the CPU spoken to as if it were an accelerator, for programs that speak to whatever there is."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib import import_module
from typing import Any

from flambeau.kernels.native import native

__all__ = [
    "Event", "Stream", "StreamContext", "current_device", "current_stream", "device_count", "get_capabilities", "is_available", "is_initialized",
    "set_device", "stream", "synchronize",
]  # fmt: skip


class Stream:
    """Work on the CPU is done when the call returns: there is nothing to wait for."""

    def __init__(self, priority: int = -1) -> None:
        pass

    def wait_stream(self, stream: Any) -> None:
        """Nothing: all work is done."""

    def record_event(self) -> None:
        """Nothing: all work is done."""

    def wait_event(self, event: Any) -> None:
        """Nothing: all work is done."""


class Event:
    """A mark in the work, which is done when it is made."""

    def query(self) -> bool:
        """True."""
        return True

    def record(self, stream: Any = None) -> None:
        """Nothing: all work is done."""

    def synchronize(self) -> None:
        """Nothing: all work is done."""

    def wait(self, stream: Any = None) -> None:
        """Nothing: all work is done."""


_stream = Stream()


def is_available() -> bool:
    """True."""
    return True


def is_initialized() -> bool:
    """True."""
    return True


def synchronize(device: Any = None) -> None:
    """Nothing: all work is done."""


def device_count() -> int:
    """One."""
    return 1


def current_device() -> str:
    """Its name."""
    return "cpu"


def set_device(device: Any) -> None:
    """Nothing: there is one."""


def current_stream(device: Any = None) -> Stream:
    """The only one."""
    return _stream


def stream(stream: Stream | None) -> AbstractContextManager[None]:
    """A `with` that changes nothing."""
    return nullcontext()


StreamContext = nullcontext


def get_capabilities() -> dict[str, Any]:
    """The variant of the kernels in use."""
    return {"variant": native.lib.variant() if native.lib is not None else None}


@cache
def _flags() -> frozenset[str]:
    """What the processor says it can do, where the system tells."""
    try:
        with open("/proc/cpuinfo") as file:
            return frozenset(next((line.partition(":")[2] for line in file if line.startswith("flags")), "").split())
    except OSError:
        return frozenset()


def _is_avx2_supported() -> bool:
    return "avx2" in _flags()


def _is_avx512_supported() -> bool:
    return {"avx512f", "avx512vl", "avx512bw", "avx512dq"} <= _flags()


def _is_vnni_supported() -> bool:
    return "avx512_vnni" in _flags()


def _is_amx_tile_supported() -> bool:
    return "amx_tile" in _flags()


def __getattr__(name: str) -> Any:
    if name == "amp":  # imported when asked for
        return import_module("flambeau.cpu.amp")
    raise AttributeError(f"module 'flambeau.cpu' has no attribute {name!r}")
