"""torch.return_types: the types of named results, for programs that ask isinstance(x.max(0), torch.return_types.max)."""

from __future__ import annotations

from flambeau import ops
from flambeau.ops.results import TYPES


def __getattr__(name: str) -> type:
    if name not in TYPES and not name.startswith("__"):
        ops.everything()  # a type is made with the operation it belongs to
    if name not in TYPES:
        raise AttributeError(f"torch.return_types has no {name!r}: no operation of that name has several results")
    return TYPES[name]


def __dir__() -> list[str]:
    ops.everything()
    return sorted(TYPES)
