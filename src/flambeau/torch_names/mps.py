"""torch.mps: Apple's GPUs, for programs that ask which device there is. Flambeau runs on none of them, and answers so."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["current_allocated_memory", "device_count", "empty_cache", "is_available", "manual_seed", "seed", "synchronize"]


def is_available() -> bool:
    """Whether there is one: no."""
    return False


def device_count() -> int:
    """How many there are: none."""
    return 0


def manual_seed(seed: int) -> None:
    """Seed its generator: there is none to seed."""


def _absent(*args: Any, **kwargs: Any) -> NoReturn:
    """RuntimeError: there is no such device."""
    raise RuntimeError("torch.mps: this cannot be done without MPS backend. Flambeau runs on the CPU and on CUDA")


current_allocated_memory = empty_cache = seed = synchronize = _absent
