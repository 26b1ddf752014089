"""swap_tensors: two tensors exchange everything but their identity.

Note [graphs of swapped tensors]: what was recorded before a swap refers to a leaf as an object, and would send the gradient of what it was to
what it is now. So a swapped tensor knows when that happened (`_swapped_at`, the number of the next node then), and gradients from older nodes,
and saved values of theirs, are refused.
"""

from __future__ import annotations

import copyreg
import weakref
from typing import Any

from flambeau import modes
from flambeau.tensor.node import _accumulators, next_sequence
from flambeau.tensor.tensor import Tensor


def swap_tensors(t1: Tensor, t2: Tensor) -> None:
    """Exchange class, attributes, data, gradient and history of two tensors: whoever holds `t1` finds what `t2` was.

    >>> a, b = Tensor([1.0]), Tensor([2.0, 3.0])
    >>> swap_tensors(a, b)
    >>> a
    tensor([2., 3.])
    """
    for name, tensor in (("t1", t1), ("t2", t2)):
        if not all(hasattr(type(ref), "own") for ref in weakref.getweakrefs(tensor)):
            raise RuntimeError(f"swap_tensors: {name} has weakref(s) to it, and whoever holds one would find another tensor")
    slots = set(copyreg._slotnames(type(t1)))  # type: ignore[attr-defined]
    if slots != set(copyreg._slotnames(type(t2))):  # type: ignore[attr-defined]
        raise RuntimeError(f"Cannot swap t1 and t2 if they have different slots: {type(t1).__name__} and {type(t2).__name__}")
    t1.__class__, t2.__class__ = t2.__class__, t1.__class__
    t1.__dict__, t2.__dict__ = t2.__dict__, t1.__dict__
    for slot in slots:
        _put(t2, slot, _put(t1, slot, getattr(t2, slot, _UNSET)))
    for tensor in (t1, t2):
        proxy: Any = tensor._array
        if hasattr(proxy, "owner"):  # a geometry without memory, that knows whose it is
            proxy.owner = type(proxy.owner)(tensor)
    now = next_sequence()
    for tensor in (t1, t2):
        if tensor._needs or tensor._swapped_at:
            tensor._swapped_at, modes.leaf_hooks = now, True
            _accumulators.pop(id(tensor), None)


_UNSET = object()


def _put(tensor: Tensor, slot: str, value: object) -> object:
    """Set a slot, or empty it; what was there before."""
    before = getattr(tensor, slot, _UNSET)
    if value is not _UNSET:
        setattr(tensor, slot, value)
    elif before is not _UNSET:
        delattr(tensor, slot)
    return before
