"""The batches of indices of an epoch, as slices of arrays where the samplers are this package's own: no list of 60000 Python ints.

The order, and the moments at which random numbers are drawn, are those of iterating over the samplers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from flambeau.utils.data.distributed import DistributedSampler
from flambeau.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler

_OWN = {kind: kind.__iter__ for kind in (BatchSampler, DistributedSampler, RandomSampler, SequentialSampler)}
_STRETCH = 1 << 16  # indices of a sequential order made at once


class Indices(np.ndarray):
    """int64 indices that this package has made: in arrays of the user's own, `dataset[i]` would get NumPy's integers."""


def batches(index_sampler: Any) -> Iterator[Any]:
    """iter(index_sampler), with arrays instead of lists where that is possible."""
    chunks = _chunks(index_sampler.sampler) if _is_own(index_sampler, BatchSampler) else None
    if chunks is None:
        return iter(index_sampler)
    return _cut(chunks, index_sampler.batch_size, index_sampler.drop_last)


def is_known(index_sampler: Any) -> bool:
    """Whether all samplers behind an order are this package's own, which draw only from a generator of this package."""
    inner = index_sampler.sampler if type(index_sampler) is BatchSampler else index_sampler
    return type(inner) in (*_OWN, SubsetRandomSampler, WeightedRandomSampler)


def _is_own(sampler: Any, kind: type) -> bool:
    """Whether a sampler is of exactly this class, and nobody has replaced how it iterates."""
    return type(sampler) is kind and kind.__iter__ is _OWN[kind]  # type: ignore[attr-defined]


def _chunks(sampler: Any) -> Iterable[np.ndarray] | None:
    if _is_own(sampler, RandomSampler):
        return sampler._chunks()
    if _is_own(sampler, SequentialSampler):
        return _stretches(sampler)
    if _is_own(sampler, DistributedSampler):
        return _whole(sampler)
    return None


def _whole(sampler: DistributedSampler) -> Iterator[np.ndarray]:
    yield sampler._order()  # when the first batch is asked for: set_epoch() may be called until then


def _stretches(sampler: SequentialSampler) -> Iterator[np.ndarray]:
    n = len(sampler)
    for start in range(0, n, _STRETCH):
        yield np.arange(start, min(start + _STRETCH, n))


def _cut(chunks: Iterable[np.ndarray], size: int, drop_last: bool) -> Iterator[np.ndarray]:
    """Pieces of `size` indices from arrays of any length; the next array is asked for when a piece needs it."""
    source = iter(chunks)
    rest: np.ndarray = np.empty(0, np.int64).view(Indices)
    while True:
        for start in range(0, len(rest) - size + 1, size):
            yield rest[start : start + size]
        rest = rest[len(rest) - len(rest) % size :]
        while len(rest) < size:
            more = next(source, None)
            if more is None:
                if len(rest) and not drop_last:
                    yield rest
                return
            rest = (np.concatenate([rest, more]) if len(rest) else more).view(Indices)
