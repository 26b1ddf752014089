"""torch._VF: all operations by name, from where PyTorch's own layers, and layers copied from them, call the recurrent ones."""

from __future__ import annotations

from collections.abc import Callable

from flambeau.eager import bind


def __getattr__(name: str) -> Callable:
    if name.startswith("__") or name not in bind.functions:
        raise AttributeError(f"torch._VF has no {name!r}: there is no such operation")
    return bind.functions[name]
