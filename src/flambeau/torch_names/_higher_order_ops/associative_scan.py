"""Running combinations of any associative function: cumsum is the one of addition, cumprod of multiplication, state-space models have their own.

Pairs are combined first, their running combinations found in the same way, and the places between filled in: 2 log n calls on slices, not n.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.ops.joining import cat, stack
from flambeau.tensor import Tensor
from flambeau.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["associative_scan"]

Parts = list[Tensor]


def associative_scan(combine_fn: Callable, xs: Any, dim: int, reverse: bool = False, combine_mode: str = "pointwise") -> Any:
    """x0, f(x0, x1), f(f(x0, x1), x2), ... along `dim` of each tensor in xs; from the end if `reverse`. Same structure and shapes as xs.

    >>> associative_scan(lambda x, y: x + y, torch.arange(4), 0)
    tensor([0, 1, 3, 6])
    """
    if not callable(combine_fn):
        raise ValueError(f"associative_scan: combine_fn is a function, found {combine_fn!r}")
    if combine_mode not in ("pointwise", "generic"):
        raise ValueError(f"combine_mode must be either 'pointwise' or 'generic', but got {combine_mode!r}")
    leaves, structure = tree_flatten(xs)
    if not leaves or not all(isinstance(leaf, Tensor) for leaf in leaves):
        raise ValueError("xs must hold tensors, at least one")
    lengths = {leaf.shape[dim] for leaf in leaves}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(f"all tensors must have the same length along dim {dim}, above zero, found {sorted(lengths)}")

    def combine(left: Parts, right: Parts) -> Parts:
        result = combine_fn(tree_unflatten(left, structure), tree_unflatten(right, structure))
        return tree_flatten(result)[0]

    parts = [leaf.movedim(dim, 0) for leaf in leaves]
    parts = [part.flip(0) for part in parts] if reverse else parts
    parts = _scan(combine, parts)
    parts = [part.flip(0) for part in parts] if reverse else parts
    return tree_unflatten([part.movedim(0, dim) for part in parts], structure)


def _scan(combine: Callable[[Parts, Parts], Parts], parts: Parts) -> Parts:
    n = parts[0].shape[0]
    if n < 2:
        return parts
    odd = _scan(combine, combine([p[: n - 1 : 2] for p in parts], [p[1::2] for p in parts]))  # places 1, 3, 5, ...
    even = combine([p[: (n - 1) // 2] for p in odd], [p[2::2] for p in parts]) if n > 2 else [p[:0] for p in parts]
    even = [cat([p[:1], e]) for p, e in zip(parts, even, strict=True)]  # places 0, 2, 4, ...
    return [_woven(e, o) for e, o in zip(even, odd, strict=True)]


def _woven(even: Tensor, odd: Tensor) -> Tensor:
    """even[0], odd[0], even[1], odd[1], ...; even may be one longer."""
    n = odd.shape[0]
    woven = stack([even[:n], odd], 1).flatten(0, 1)
    return cat([woven, even[n:]]) if even.shape[0] > n else woven
