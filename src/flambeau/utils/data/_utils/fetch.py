"""Fetchers: from indices to a batch. One asks a data set for items by index, the other takes the next items of a stream."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from flambeau.utils.data._utils.collate import default_collate
from flambeau.utils.data.gather import gatherer


class _BaseDatasetFetcher:
    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Callable, drop_last: bool) -> None:
        self.dataset = dataset
        self.auto_collation = auto_collation
        self.collate_fn = collate_fn
        self.drop_last = drop_last

    def fetch(self, possibly_batched_index: Any) -> Any:
        """The batch of a list (or an array) of indices; with auto_collation=False the item of one."""
        raise NotImplementedError


class _MapDatasetFetcher(_BaseDatasetFetcher):
    """Items by index. Rows of tensors are gathered with one indexed copy (gather.py)."""

    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Callable, drop_last: bool) -> None:
        super().__init__(dataset, auto_collation, collate_fn, drop_last)
        self.gather = gatherer(dataset) if auto_collation and collate_fn is default_collate else None

    def fetch(self, possibly_batched_index: Any) -> Any:
        index = possibly_batched_index
        if not self.auto_collation:
            return self.collate_fn(self._item(index))
        if self.gather is not None:
            batch = self.gather(index)
            if batch is not None:
                return batch
        if type(index) is np.ndarray:
            index = index.tolist()
        if getattr(self.dataset, "__getitems__", None):
            items = self.dataset.__getitems__(index)
        else:
            dataset = self.dataset
            items = []
            for i in index:
                try:
                    items.append(dataset[i])
                except Exception as problem:
                    _note(problem, i)
                    raise
        return self.collate_fn(items)

    def _item(self, i: Any) -> Any:
        try:
            return self.dataset[i]
        except Exception as problem:
            _note(problem, i)
            raise


def _note(problem: Exception, i: Any) -> None:
    """Put the index of the item below an exception's traceback."""
    problem.add_note(f"(raised by dataset[{i!r}] for a DataLoader)")


class _IterableDatasetFetcher(_BaseDatasetFetcher):
    """The next items of a stream; an index says only how many."""

    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Callable, drop_last: bool) -> None:
        super().__init__(dataset, auto_collation, collate_fn, drop_last)
        self.dataset_iter = iter(dataset)
        self.ended = False

    def fetch(self, possibly_batched_index: Any) -> Any:
        if self.ended:
            raise StopIteration
        if not self.auto_collation:
            return self.collate_fn(next(self.dataset_iter))
        wanted = len(possibly_batched_index)
        items = list(itertools.islice(self.dataset_iter, wanted))
        self.ended = len(items) < wanted
        if not items or (self.drop_last and self.ended):
            raise StopIteration
        return self.collate_fn(items)
