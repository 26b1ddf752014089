"""torch.nn.quantized: the older name of torch.ao.nn.quantized."""

from __future__ import annotations

from typing import Any

from flambeau.ao.nn import quantized as _home
from flambeau.nn.quantized import dynamic as dynamic


def __getattr__(name: str) -> Any:
    return getattr(_home, name)
