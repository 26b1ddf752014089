"""What surrounds training: data loading, checkpointed gradients, event files. Each room is imported when it is first asked for."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any


def __getattr__(name: str) -> Any:
    if name == "swap_tensors":
        globals()[name] = found = import_module("flambeau.tensor.swapping").swap_tensors
        return found
    if name.startswith("__") or find_spec(f"{__name__}.{name}") is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
