"""Doors: a module that shows what lives in others, and imports each of them when one of its names is first asked for.

    __getattr__, __dir__, __all__ = door(__name__, {
        "api": "TimerClient TimerServer configure",
        "local_timer": "LocalTimerClient LocalTimerServer",
    })

A name with an underscore can be had, too, but is not in `__all__`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

Getter = Callable[[str], Any]


def door(module: str, *tables: Mapping[str, str]) -> tuple[Getter, Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a module: tables say which names live in which neighbour of it, or in which module inside of it."""
    own = sys.modules[module]
    where = {name: home for homes in tables for home, names in homes.items() for name in names.split()}

    def get(name: str) -> Any:
        if name in where:
            found = getattr(import_module(f"{own.__package__}.{where[name]}"), name)
            setattr(own, name, found)
            return found
        if "__path__" in vars(own) and not name.startswith("__") and find_spec(f"{module}.{name}") is not None:
            return import_module(f"{module}.{name}")
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    def names() -> list[str]:
        return sorted({*vars(own), *where})

    return get, names, sorted(name for name in where if not name.startswith("_"))
