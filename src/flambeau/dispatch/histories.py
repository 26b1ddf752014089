"""The history of what somebody else has made: that of the operation which was asked for.

See Note [below autograd] in calls.py. Nodes made here carry their derivatives out by operations, never on arrays: a saved tensor may have none.
"""

from __future__ import annotations

from typing import Any

from flambeau import modes
from flambeau.dispatch.leaves import Leaf
from flambeau.eager import inplace
from flambeau.eager.pointwise import _reads_self
from flambeau.eager.record import needed_names, record_array, record_pointwise, record_written
from flambeau.eager.saved import Before, with_history
from flambeau.tensor import DISPATCHED, Tensor

state = modes.state


def of_results(leaf: Leaf, found: Any) -> Any:
    """An answer with the history of the leaf."""
    results = (found,) if isinstance(found, Tensor) else tuple(found) if isinstance(found, tuple | list) else ()
    op = leaf.op
    if not results or not all(isinstance(r, Tensor) for r in results) or not getattr(op, "differentiable", True):
        return found
    if any(r.requires_grad and r._node is not None for r in results) or any(r is v for r in results for v in leaf.values):
        return found  # it has a history already: that of what it is made of, or its own
    if not any(r._is_float() for r in results):
        return found
    if op.kind == "pointwise":
        record_pointwise(op, results[0], leaf.values, leaf.options)
    else:
        record_array(op, results, leaf.values)
    node = next((r._node for r in results if r._node is not None), None)
    if node is not None:
        node.by_operations = True
    return found


def as_views(op, args: tuple, kwargs: dict, found: Any) -> None:
    """Let views know their base, and how they are made from it: a write through them is a write to the base."""
    input, *rest = args
    several = not isinstance(found, Tensor)
    for i, view in enumerate(found if several and isinstance(found, tuple | list) else (found,)):
        if not isinstance(view, Tensor) or view is input:
            continue
        mode = ("multi" if several else input._view_mode) if state.grad else "inference" if state.inference else "no_grad"
        if type(view) in DISPATCHED and view._base is None and type(input) in DISPATCHED:
            view._storage = input._shared_storage()
            view._base, view._stamp, view._view_mode = input if input._base is None else input._base, view._storage.version, mode
            above = input.__dict__.get("_look") or (lambda base: base)
            view.__dict__["_look"] = lambda base, i=i, above=above: _again(op, above(base), rest, kwargs, i if several else None)
        elif view._base is not None and view._view_mode == "no_grad":
            view._view_mode = mode  # it was made while nothing was recorded, by whoever was asked


def _again(op, base: Tensor, rest: list, kwargs: dict, which: int | None) -> Tensor:
    found = getattr(op, "call", op)(base, *rest, **kwargs)
    return found if which is None else found[which]


def before(leaf: Leaf, self: Tensor) -> Before:
    """What the history of a write has to know from before it."""
    op, values = leaf.op, leaf.values
    if op.kind == "pointwise":
        reads = _reads_self(op, values)
    else:
        derivatives = [*op.derivatives.values(), *([op.joint_derivative] if op.joint_derivative else [])]
        reads = any(op.parameters[0] in needed_names(f) for f in derivatives)
    known = Before(self, values, False)
    if reads:
        with modes.no_grad():
            known.original = self.clone()
        edge = known.edges[id(self)]
        if edge is not None:
            with_history(known.original, *edge)
    return known


def of_write(leaf: Leaf, self: Tensor, known: Before) -> None:
    """Give what was written to the history of the write."""
    op = leaf.op
    if not self._is_float():
        return
    if op.kind == "pointwise":
        inplace.rewrite(self, lambda result: record_written(op, result, leaf.values, leaf.options, known))
    else:
        inplace.rewrite(self, lambda result: record_array(op, (result,), (self, *leaf.values[1:]), known))
    if self._node is not None:
        self._node.by_operations = True
