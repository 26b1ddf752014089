"""Nested tuples, lists and dictionaries as a flat list of leaves and a shape to put them back into.

The functions of `flambeau.func` take and return such trees: a dictionary of parameters, a pair of losses. A named tuple stays one; what a program
has registered with `torch.utils._pytree` is a container, too; whatever is none is a leaf.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any

LEAF = None  # the shape of a leaf


REGISTERED: dict[type, Any] = {}  # kinds of containers by class, with flatten_fn and unflatten_fn: see utils/_pytree.py


class Shape:
    """A container without its leaves: how to make it, its keys if it has any, and the shapes of what is in it."""

    __slots__ = ("children", "keys", "kind", "make")

    def __init__(self, kind: type, make: Callable[[list], Any], children: list, keys: tuple | None = None):
        self.kind, self.make, self.children, self.keys = kind, make, children, keys

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shape) and (self.kind, self.keys, self.children) == (other.kind, other.keys, other.children)

    def __hash__(self) -> int:
        return hash((self.kind, self.keys))

    def __repr__(self) -> str:
        inside = ["*" if c is LEAF else repr(c) for c in self.children]
        shown = inside if self.keys is None else [f"{k!r}: {c}" for k, c in zip(self.keys, inside, strict=True)]
        return f"{self.kind.__name__}({', '.join(shown)})"


def opened(tree: Any) -> tuple[list, Shape] | None:
    """What is directly inside a container, and its shape with leaves for all of that; None for a leaf."""
    kind = type(tree)
    if kind in (dict, OrderedDict, defaultdict):
        keys = tuple(tree)
        inside, make = [tree[k] for k in keys], lambda items: _mapping(tree, keys, items)
    elif isinstance(tree, tuple) and hasattr(tree, "_fields"):
        keys, inside, make = None, list(tree), lambda items: kind(*items)
    elif kind in (tuple, list):
        keys, inside, make = None, list(tree), kind
    elif kind is deque:
        keys, inside, make = None, list(tree), lambda items: deque(items, tree.maxlen)
    elif kind in REGISTERED:
        inside, context = REGISTERED[kind].flatten_fn(tree)
        keys, inside, make = None, list(inside), lambda items: REGISTERED[kind].unflatten_fn(items, context)
    else:
        return None
    return inside, Shape(kind, make, [LEAF] * len(inside), keys)


def _mapping(like: Any, keys: tuple, items: Iterable) -> Any:
    pairs = zip(keys, items, strict=True)
    return defaultdict(like.default_factory, pairs) if type(like) is defaultdict else type(like)(pairs)


def flatten(tree: Any) -> tuple[list, Shape | None]:
    """(leaves in order, shape)."""
    found = opened(tree)
    if found is None:
        return [tree], LEAF
    inside, shape = found
    leaves: list = []
    for i, item in enumerate(inside):
        below, shape.children[i] = flatten(item)
        leaves += below
    return leaves, shape


def unflatten(leaves: Iterable, shape: Shape | None) -> Any:
    """The tree of this shape with these leaves."""
    return _take(iter(leaves), shape)


def _take(leaves, shape: Shape | None) -> Any:
    return next(leaves) if shape is LEAF else shape.make([_take(leaves, child) for child in shape.children])


def leaves_of(tree: Any) -> list:
    """The leaves, in order."""
    return flatten(tree)[0]


def mapped(function: Callable, tree: Any, *others: Any) -> Any:
    """The tree with function(leaf, leaves of others at the same place) for every leaf; the others have the same shape."""
    leaves, shape = flatten(tree)
    return unflatten([function(*items) for items in zip(leaves, *map(leaves_of, others), strict=True)], shape)


def spread(prefix: Any, shape: Shape | None) -> list | None:
    """One value for each leaf: `prefix` is a tree whose leaves stand for everything below their place. None if it does not fit."""
    found = opened(prefix) if shape is not LEAF else None
    if found is None:
        return None if shape is LEAF and opened(prefix) is not None else [prefix] * count(shape)
    inside, own = found
    if own.kind is not shape.kind or own.keys != shape.keys or len(inside) != len(shape.children):
        return None
    spreads = [spread(item, child) for item, child in zip(inside, shape.children, strict=True)]
    return None if any(s is None for s in spreads) else [value for s in spreads for value in s]


def count(shape: Shape | None) -> int:
    """The number of leaves."""
    return 1 if shape is LEAF else sum(map(count, shape.children))
