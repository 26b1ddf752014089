"""rearrange: reshape, permute and reshape again, told by the names of axes.

    rearrange(images, "batch (rows r) (columns c) -> (batch r c) rows columns", r=2, c=2)

Each side lists the axes; those in parentheses are parts of one dimension. `...` stands for any number of axes, 1 for an axis of size one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import Any

from flambeau.ops import OPS
from flambeau.tensor import Tensor

DOTS = "..."
ALONE = [DOTS]  # dots that stand for dimensions; those in parentheses for parts of one


def rearrange(tensor: Tensor | Sequence[Tensor], pattern: str, **axes_lengths: int) -> Tensor:
    """The tensor (or several, stacked) with its axes split, reordered and joined as the pattern says.

    axes_lengths  sizes of axes on the left that the shape does not tell

    >>> tuple(rearrange(torch.zeros(2, 3, 4), "a b c -> (a c) b").shape)
    (8, 3)
    """
    x: Any = tensor if isinstance(tensor, Tensor) else OPS["stack"](list(tensor))
    left, right = _sides(pattern)
    left, right, rest = _without_dots(left, right, x.dim(), pattern)
    _check_names(left, right, axes_lengths, pattern)
    if len(left) != x.dim():
        raise ValueError(f"Number of dimensions in pattern ({len(left)}) and tensor ({x.dim()}) must be equal: {pattern!r}")
    sizes: dict[str, int] = dict(rest) | axes_lengths
    for group, n in zip(left, x.shape, strict=True):
        _fill(group, n, sizes, pattern)
    names = [name for group in left for name in group if name != "1"]
    parts = x.reshape([sizes[name] for name in names])
    order = [names.index(name) for group in right for name in group if name != "1"]
    return parts.permute(order).reshape([prod(sizes.get(name, 1) for name in group) for group in right])


def _sides(pattern: str) -> tuple[list, list]:
    if pattern.count("->") != 1:
        raise ValueError(f"expected one -> between the axes before and after, found {pattern!r}")
    left, right = (_groups(side, pattern) for side in pattern.split("->"))
    return left, right


def _groups(side: str, pattern: str) -> list[list[str]]:
    """One list of names for each dimension."""
    found: list[list[str]] = []
    inside = False
    tokens = re.findall(r"\.\.\.|[()]|[^\s().]+|\.", side)
    for token in tokens:
        if token == "(":
            if inside:
                raise ValueError(f"parentheses do not nest in {pattern!r}")
            inside = True
            found.append([])
        elif token == ")":
            if not inside:
                raise ValueError(f"a closing parenthesis without an opening one in {pattern!r}")
            inside = False
        elif token not in (DOTS, "1") and (not token.isidentifier() or token.startswith("_") or token.endswith("_")):
            raise ValueError(f"invalid axis identifier {token!r} in {pattern!r}: names begin with a letter and do not end with _")
        elif inside:
            found[-1].append(token)
        else:
            found.append(ALONE if token == DOTS else [token])
    if inside:
        raise ValueError(f"an opening parenthesis without a closing one in {pattern!r}")
    return found


def _without_dots(left: list, right: list, dims: int, pattern: str) -> tuple[list, list, dict]:
    """Both sides with names in place of the dots."""
    places = [group for group in left if DOTS in group]
    asked = any(DOTS in group for group in right)
    if (asked and not places) or len(places) > 1 or any(group is not ALONE for group in places):
        raise ValueError(f"... stands once on the left of {pattern!r}, not in parentheses, if it stands on the right")
    if not places:
        return left, right, {}
    names = [f"dots {i}" for i in range(dims - len(left) + 1)]
    opened = [new for group in left for new in ([[n] for n in names] if DOTS in group else [group])]
    after: list[list[str]] = []
    for group in right:
        if group is ALONE:
            after += [[n] for n in names]
        else:
            after.append([n for name in group for n in (names if name == DOTS else [name])])
    return opened, after, {}


def _check_names(left: list, right: list, given: dict[str, Any], pattern: str) -> None:
    before, after = ([name for group in side for name in group if name != "1"] for side in (left, right))
    if len(set(before)) != len(before) or len(set(after)) != len(after):
        raise ValueError(f"an axis occurs twice on one side of {pattern!r}")
    if set(before) != set(after):
        raise ValueError(
            f"Identifiers only on one side of expression (should be on both): {sorted(set(before) ^ set(after))} in {pattern!r}"
        )
    unknown = set(given) - set(before)
    if unknown:
        raise ValueError(f"axes_lengths names {sorted(unknown)}, which are not in {pattern!r}")


def _fill(group: list[str], n: int, sizes: dict[str, int], pattern: str) -> None:
    """Find the size of the one axis of a dimension that is not known."""
    unknown = [name for name in group if name != "1" and name not in sizes]
    known = prod(sizes.get(name, 1) for name in group)
    if len(unknown) > 1:
        raise ValueError(f"the sizes of {unknown} in {pattern!r} cannot be told apart: give all but one of them")
    if unknown and known and n % known == 0:
        sizes[unknown[0]] = n // known
    elif unknown or known != n:
        raise ValueError(f"({' '.join(group)}) in {pattern!r} does not divide a dimension of size {n}: it has {known} times something")
