"""Data sets: what gives item number i (`Dataset`), or one item after another (`IterableDataset`), and ways to combine them."""

from __future__ import annotations

import bisect
import itertools
import math
import warnings
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from flambeau.random import Generator, default_generator
from flambeau.tensor import Tensor
from flambeau.tensor.making.random_factories import randperm

__all__ = ["ChainDataset", "ConcatDataset", "Dataset", "IterableDataset", "StackDataset", "Subset", "TensorDataset", "random_split"]

_T_co = TypeVar("_T_co", covariant=True)


class Dataset(Generic[_T_co]):
    """Items by index. A subclass has `__getitem__`, and `__len__` for the samplers; with `__getitems__(indices)` it may give
    the items of a whole batch at once, as a list."""

    def __getitem__(self, index) -> _T_co:
        raise NotImplementedError(f"Subclasses of Dataset should implement __getitem__: {type(self).__name__} does not")

    def __add__(self, other: Dataset) -> ConcatDataset:
        return ConcatDataset([self, other])

    # There is no __len__ here on purpose: len() of a data set that has none must be a TypeError.


class IterableDataset(Dataset[_T_co], Iterable[_T_co]):
    """Items one after another, for data that come as a stream.

    Every worker of a DataLoader iterates over a copy of its own: `get_worker_info()` inside `__iter__` says which share is whose.
    With `state_dict()` and `load_state_dict(state)` a data set says itself how to go on in the middle (see `DataLoader.state_dict`).
    """

    @abstractmethod
    def __iter__(self) -> Iterator[_T_co]: ...

    def __add__(self, other: Dataset) -> ChainDataset:
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Item i is row i of every tensor, as a tuple.

    >>> from flambeau.tensor.making.factories import tensor
    >>> TensorDataset(tensor([1, 2]), tensor([3, 4]))[1]
    (tensor(2), tensor(4))
    """

    tensors: tuple[Tensor, ...]

    def __init__(self, *tensors: Tensor) -> None:
        if tensors and any(tensors[0].size(0) != t.size(0) for t in tensors):
            raise AssertionError(f"Size mismatch between tensors: they have {', '.join(str(t.size(0)) for t in tensors)} rows")
        self.tensors = tensors

    def __getitem__(self, index):
        return tuple([t[index] for t in self.tensors])

    def __len__(self) -> int:
        return self.tensors[0].size(0)


class StackDataset(Dataset):
    """Item i is item i of several data sets: as a tuple for StackDataset(a, b), as a dict for StackDataset(image=a, text=b)."""

    datasets: tuple | dict

    def __init__(self, *args: Dataset, **kwargs: Dataset) -> None:
        if args and kwargs:
            raise ValueError(
                "StackDataset: Supported either data sets (items are tuples) or names=data sets (items are dicts), but both are given"
            )
        parts: Any = args or tuple(kwargs.values())
        if not parts:
            raise ValueError("At least one dataset should be passed to StackDataset")
        self._length = len(parts[0])
        if any(len(part) != self._length for part in parts):
            raise ValueError(f"Size mismatch between datasets: they have {', '.join(str(len(part)) for part in parts)} items")
        self.datasets = args or kwargs

    def __getitem__(self, index):
        if isinstance(self.datasets, dict):
            return {name: part[index] for name, part in self.datasets.items()}
        return tuple([part[index] for part in self.datasets])

    def __getitems__(self, indices: list) -> list:
        """The items of a whole batch, asked for at once where a data set can."""
        if isinstance(self.datasets, dict):
            columns = [_items(part, indices) for part in self.datasets.values()]
            return [dict(zip(self.datasets, row, strict=True)) for row in zip(*columns, strict=True)]
        return list(zip(*[_items(part, indices) for part in self.datasets], strict=True))

    def __len__(self) -> int:
        return self._length


def _items(dataset: Any, indices: list) -> list:
    """The items of a batch from one of the data sets of a stack."""
    if not callable(getattr(dataset, "__getitems__", None)):
        return [dataset[i] for i in indices]
    items = dataset.__getitems__(indices)
    if len(items) != len(indices):
        found = f"Expected {len(indices)}, got {len(items)} from {type(dataset).__name__}.__getitems__"
        raise ValueError(f"Nested dataset's output size mismatch. {found}")
    return items


class ConcatDataset(Dataset[_T_co]):
    """Several data sets one behind the other. `cumulative_sizes` says where each ends."""

    datasets: list[Dataset[_T_co]]
    cumulative_sizes: list[int]

    @staticmethod
    def cumsum(sequence) -> list[int]:
        """The running sum of the lengths."""
        return list(itertools.accumulate(len(part) for part in sequence))

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("ConcatDataset: datasets should not be an empty iterable")
        if any(isinstance(part, IterableDataset) for part in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset, which has no index. Try ChainDataset")
        self.cumulative_sizes = self.cumsum(self.datasets)

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, idx):
        if idx < 0:
            if -idx > len(self):
                raise ValueError(f"index {idx} is out of a dataset of {len(self)} items")
            idx += len(self)
        part = bisect.bisect_right(self.cumulative_sizes, idx)
        start = self.cumulative_sizes[part - 1] if part else 0
        return self.datasets[part][idx - start]

    @property
    def cummulative_sizes(self) -> list[int]:
        """The old spelling of `cumulative_sizes`."""
        warnings.warn("`cummulative_sizes` attribute is renamed to `cumulative_sizes`", FutureWarning, stacklevel=2)
        return self.cumulative_sizes


class ChainDataset(IterableDataset):
    """Several streams one after another."""

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        super().__init__()
        self.datasets = datasets

    def __iter__(self):
        for part in self.datasets:
            yield from _stream(part)

    def __len__(self) -> int:
        return sum([len(_stream(part)) for part in self.datasets])  # type: ignore[arg-type, misc]


def _stream(part: Any) -> IterableDataset:
    if not isinstance(part, IterableDataset):
        raise AssertionError(f"ChainDataset only supports IterableDataset, found {type(part).__name__}")
    return part


class Subset(Dataset[_T_co]):
    """Some of the items of a data set, in the order of `indices`."""

    dataset: Dataset[_T_co]
    indices: Sequence[int]

    def __init__(self, dataset: Dataset[_T_co], indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices
        own = type(self)
        if own.__getitem__ is not Subset.__getitem__ and own.__getitems__ is Subset.__getitems__:
            raise NotImplementedError(
                f"{own.__name__} overrides __getitem__ but not __getitems__, with which a DataLoader asks a Subset for the items of a "
                "batch. Try: def __getitems__(self, indices): return [self[i] for i in indices]"
            )

    def __getitem__(self, idx):
        if isinstance(idx, list):
            return self.dataset[[self.indices[i] for i in idx]]
        return self.dataset[self.indices[idx]]

    def __getitems__(self, indices: list[int]) -> list[_T_co]:
        """The items of a whole batch, asked for at once if the data set can."""
        chosen = [self.indices[i] for i in indices]
        if callable(getattr(self.dataset, "__getitems__", None)):
            return self.dataset.__getitems__(chosen)
        return [self.dataset[i] for i in chosen]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(dataset: Dataset, lengths: Sequence[int | float], generator: Generator | None = default_generator) -> list[Subset]:
    """Deal the items out at random into parts that do not overlap, of the given lengths, or fractions that add up to 1.

    Each part of a fraction has floor(fraction * n) items; what remains goes to the first parts, one each.

    >>> [len(part) for part in random_split(range(10), [0.75, 0.25])]
    [8, 2]
    """
    if math.isclose(sum(lengths), 1):
        lengths = _lengths_of_fractions(len(dataset), lengths)  # type: ignore[arg-type]
    if sum(lengths) != len(dataset):  # type: ignore[arg-type]
        raise ValueError(
            f"random_split: the sum of lengths does not equal the number of items: {list(lengths)} add up to {sum(lengths)}, and there "
            f"are {len(dataset)}. Fractions must add up to 1"  # type: ignore[arg-type]
        )
    order: list[int] = randperm(sum(lengths), generator=generator).tolist()
    ends = list(itertools.accumulate(lengths))
    return [Subset(dataset, order[end - length : end]) for end, length in zip(ends, lengths, strict=True)]  # type: ignore[index]


def _lengths_of_fractions(n: int, fractions: Sequence[int | float]) -> list[int]:
    for i, fraction in enumerate(fractions):
        if not 0 <= fraction <= 1:
            raise ValueError(f"Fraction {i} is not between 0 and 1: {fraction}")
    lengths = [math.floor(n * fraction) for fraction in fractions]
    for i in range(n - sum(lengths)):
        lengths[i % len(lengths)] += 1
    for i, length in enumerate(lengths):
        if length == 0:
            warnings.warn(f"random_split: split {i} has no items.", stacklevel=3)
    return lengths
