"""torch.xpu: Intel's GPUs, for programs that ask which device there is. Flambeau runs on none of them, and answers so."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = [
    "current_device", "device_count", "empty_cache", "get_device_name", "is_available", "is_bf16_supported", "is_initialized", "manual_seed",
    "manual_seed_all", "synchronize",
]  # fmt: skip


def is_available() -> bool:
    """Whether there is one: no."""
    return False


def is_initialized() -> bool:
    """Whether one is in use: no."""
    return False


def is_bf16_supported() -> bool:
    """Whether it computes in bfloat16: no."""
    return False


def device_count() -> int:
    """How many there are: none."""
    return 0


def manual_seed(seed: int) -> None:
    """Seed the generator of the current one: there is none to seed."""


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all: there is none to seed."""


def empty_cache() -> None:
    """Give memory back that is not in use: none is held."""


def _absent(*args: Any, **kwargs: Any) -> NoReturn:
    """AssertionError: there is no such device."""
    raise AssertionError("Torch not compiled with XPU enabled: Flambeau runs on the CPU and on CUDA")


current_device = get_device_name = synchronize = _absent
