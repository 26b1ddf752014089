"""Whether mixed precision on GPUs can be had at all."""

from __future__ import annotations

from flambeau.tensor.memory.host_memory import cuda_is_available

__all__ = ["amp_definitely_not_available"]


def amp_definitely_not_available() -> bool:
    """Whether there is no GPU."""
    return not cuda_is_available()
