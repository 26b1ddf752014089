"""torch.utils._triton: whether kernels in Triton can be used."""

from __future__ import annotations

from importlib.util import find_spec

__all__ = ["has_triton", "has_triton_package"]


def has_triton_package() -> bool:
    """Whether Triton is installed."""
    return find_spec("triton") is not None


def has_triton() -> bool:
    """Whether Flambeau launches kernels in Triton: no, its own are CUDA."""
    return False
