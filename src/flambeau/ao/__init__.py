"""torch.ao: quantization of models, the layers they are then made of, and pruning."""

from __future__ import annotations

from importlib import import_module

ROOMS = frozenset({"nn", "pruning", "quantization"})


def __getattr__(name: str):
    if name not in ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}: there are {', '.join(sorted(ROOMS))}")
    return import_module(f"{__name__}.{name}")
