"""torch.fx: programs as graphs that programs edit. Flambeau has no such graphs: the types can be asked for, and nothing is of them."""

from __future__ import annotations

from typing import Any

from flambeau import import_only

WHY = "Flambeau has no graph modules, programs run as they are"

__all__ = import_only.fill(
    __name__,
    WHY,
    classes="Graph GraphModule Interpreter Node Proxy Tracer Transformer",
    functions="replace_pattern symbolic_trace",
)
__all__.append("wrap")


def wrap(fn_or_name: Any) -> Any:
    """Mark a function, by itself or by its name, that a tracer shall take as a whole; returned unchanged."""
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError("Unsupported type: a callable, or the name of a global function, is expected")
    return fn_or_name
