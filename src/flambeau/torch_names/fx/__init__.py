"""torch.fx: programs as graphs that programs edit. Flambeau has no such graphs: the types can be asked for, and nothing is of them."""

from __future__ import annotations

from typing import Any

from flambeau import import_only

WHY = "Flambeau has no graph modules, programs run as they are"

Graph, GraphModule, Interpreter, Node, Proxy, Tracer, Transformer = import_only.classes(
    "torch.fx", "Graph GraphModule Interpreter Node Proxy Tracer Transformer", WHY
)
replace_pattern, symbolic_trace = import_only.functions("torch.fx", "replace_pattern symbolic_trace", WHY)

__all__ = ["Graph", "GraphModule", "Interpreter", "Node", "Proxy", "Tracer", "Transformer", "replace_pattern", "symbolic_trace", "wrap"]


def wrap(fn_or_name: Any) -> Any:
    """Mark a function, by itself or by its name, that a tracer shall take as a whole; returned unchanged."""
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError("Unsupported type: a callable, or the name of a global function, is expected")
    return fn_or_name
