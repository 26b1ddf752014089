"""Samplers: in which order the items of a data set are read, and how they are cut into batches."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

import numpy as np

from flambeau import dtypes
from flambeau.random import Generator, default_generator
from flambeau.tensor.making.factories import as_tensor, empty
from flambeau.tensor.making.random_factories import randint, randperm

__all__ = ["BatchSampler", "RandomSampler", "Sampler", "SequentialSampler", "SubsetRandomSampler", "WeightedRandomSampler"]

_T_co = TypeVar("_T_co", covariant=True)


class Sampler(Generic[_T_co]):
    """An order: something to iterate over that gives indices (or lists of indices, as a `batch_sampler`)."""

    def __iter__(self) -> Iterator[_T_co]:
        raise NotImplementedError(f"{type(self).__name__} does not say in which order: a Sampler has an __iter__ of its own")

    # There is no __len__ here on purpose: len() of a sampler that has none must be a TypeError.


class SequentialSampler(Sampler[int]):
    """0, 1, 2, ... to the end."""

    data_source: Sized

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """All indices in random order; with `replacement`, `num_samples` draws from them.

    Without a `generator` one of its own is seeded from the default generator each time, so that what others draw during an epoch does not
    change the order.
    """

    data_source: Sized
    replacement: bool
    _CHUNK = 32  # PyTorch draws with replacement in pieces of this size, which shows in the stream

    def __init__(
        self, data_source: Sized, replacement: bool = False, num_samples: int | None = None, generator: Generator | None = None
    ) -> None:
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        if not isinstance(replacement, bool):
            raise TypeError(f"replacement should be a boolean value, but got replacement={replacement}")
        _check_positive("num_samples", self.num_samples)

    @property
    def num_samples(self) -> int:
        """How many indices an epoch has. Asked anew each time, because the data may grow."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        for chunk in self._chunks():
            yield from chunk.tolist()

    def _chunks(self) -> Iterator[np.ndarray]:
        """The order in arrays, each drawn when the one before is used up. -> (any length,) int64"""
        n = len(self.data_source)
        generator = Generator().manual_seed(draw_seed(None)) if self.generator is None else self.generator
        if self.replacement:
            for _ in range(self.num_samples // self._CHUNK):
                yield randint(n, (self._CHUNK,), generator=generator)._array
            yield randint(n, (self.num_samples % self._CHUNK,), generator=generator)._array
        else:
            for _ in range(self.num_samples // n):
                yield randperm(n, generator=generator)._array
            yield randperm(n, generator=generator)._array[: self.num_samples % n]

    def __len__(self) -> int:
        return self.num_samples


def draw_seed(generator: Generator | None) -> int:
    """A seed out of a stream: the next number of 63 bits, which is what PyTorch takes too."""
    if generator is not None and generator.device.type != "cpu":
        return int(empty((), dtype=dtypes.int64, device=generator.device).random_(generator=generator).item())
    return int((generator or default_generator).draw64(1)[0]) & (2**63 - 1)


class SubsetRandomSampler(Sampler[int]):
    """The given indices in random order."""

    indices: Sequence[int]

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for i in randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """`num_samples` indices, i with a probability proportional to weights[i].

    >>> list(WeightedRandomSampler([0, 1, 0], 2))
    [1, 1]
    """

    def __init__(self, weights: Sequence[float], num_samples: int, replacement: bool = True, generator: Generator | None = None) -> None:
        _check_positive("num_samples", num_samples)
        _check_bool("replacement", replacement)
        self.weights = as_tensor(weights, dtype=dtypes.float64)
        if self.weights.dim() != 1:
            raise ValueError(f"weights should be a row of numbers, a 1d sequence, found {tuple(self.weights.shape)}")
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        yield from self.weights.multinomial(self.num_samples, self.replacement, generator=self.generator).tolist()

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of `batch_size` indices of another sampler; the last may be shorter, unless `drop_last`.

    >>> list(BatchSampler(range(5), batch_size=2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Sampler[int] | Iterable[int], batch_size: int, drop_last: bool) -> None:
        _check_positive("batch_size", batch_size)
        _check_bool("drop_last", drop_last)
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        order = iter(self.sampler)
        while batch := list(itertools.islice(order, self.batch_size)):
            if len(batch) < self.batch_size and self.drop_last:
                return
            yield batch

    def __len__(self) -> int:
        whole, rest = divmod(len(self.sampler), self.batch_size)  # type: ignore[arg-type]
        return whole + (rest > 0 and not self.drop_last)


def _check_positive(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{name} should be a positive integer, found {value}")


def _check_bool(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"{name} should be a boolean value, but got {name}={value}")
