"""CyclingIterator: several epochs as one iterator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

__all__ = ["CyclingIterator"]
Item = TypeVar("Item")


class CyclingIterator(Iterator[Item], Generic[Item]):
    """The items of `generator_fn(epoch)` for the epochs from `start_epoch` to n - 1, one after the other.

    >>> list(CyclingIterator(3, lambda epoch: iter([epoch, "end"]), start_epoch=1))
    [1, 'end', 2, 'end']
    """

    def __init__(self, n: int, generator_fn: Callable[[int], Iterator[Item]], start_epoch: int = 0):
        self._n = n
        self._epoch = start_epoch
        self._generator_fn = generator_fn
        self._iter = generator_fn(start_epoch)

    def __iter__(self) -> CyclingIterator[Item]:
        return self

    def __next__(self) -> Item:
        while True:
            try:
                return next(self._iter)
            except StopIteration:
                if self._epoch >= self._n - 1:
                    raise
            self._epoch += 1
            self._iter = self._generator_fn(self._epoch)
