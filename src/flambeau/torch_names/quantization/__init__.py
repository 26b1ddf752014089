"""torch.quantization: the older name of torch.ao.quantization."""

from __future__ import annotations

from typing import Any

from flambeau.ao import quantization as _home

__all__ = _home.__all__


def __getattr__(name: str) -> Any:
    return getattr(_home, name)


def __dir__() -> list[str]:
    return dir(_home)
