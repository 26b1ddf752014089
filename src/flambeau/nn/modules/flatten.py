"""Layers that change the shape and nothing else: Flatten and Unflatten."""

from __future__ import annotations

from typing import Any

from flambeau.nn.modules.module import Module
from flambeau.tensor import Tensor

__all__ = ["Flatten", "Unflatten"]


class Flatten(Module):
    """The dimensions start_dim to end_dim as one. (N, *) -> (N, product of *), as it is by default.

    >>> from flambeau.tensor.making.factories import zeros
    >>> tuple(Flatten()(zeros(2, 3, 4)).shape)
    (2, 12)
    """

    __constants__ = ["start_dim", "end_dim"]

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """One dimension as several. (*, product of sizes, *) -> (*, *sizes, *)."""

    __constants__ = ["dim", "unflattened_size"]

    def __init__(self, dim: int, unflattened_size: Any) -> None:
        super().__init__()
        _require_sizes(unflattened_size)
        self.dim, self.unflattened_size = dim, unflattened_size

    def forward(self, input: Tensor) -> Tensor:
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


def _require_sizes(sizes: Any) -> None:
    if not isinstance(sizes, (tuple, list)):
        raise TypeError(f"unflattened_size must be a tuple of ints, found {type(sizes).__name__}")
    for place, size in enumerate(sizes):
        if not isinstance(size, int):
            raise TypeError(f"unflattened_size must be tuple of ints, but found element of type {type(size).__name__} at pos {place}")
