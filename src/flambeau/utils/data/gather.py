"""The short way for data sets that are rows of tensors: a batch is one indexed copy per tensor, instead of a Python loop over items.

`gatherer(dataset)` is a function from indices to the batch that `default_collate` would make of the items, or None where a batch
must be put together item by item: the data set is of another class, overrides something, or its tensors carry gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from flambeau.kernels import arrays
from flambeau.tensor import Tensor, wrap
from flambeau.utils.data.dataset import ConcatDataset, StackDataset, Subset, TensorDataset

Gather = Callable[[np.ndarray], Any]
LARGE = 1 << 20  # bytes of a batch from which the compiled gather, which splits work over threads, is worth its preparations


def gatherer(dataset: Any) -> Callable[[Any], Any] | None:
    """A function: list or array of indices -> batch, or None for indices that need a closer look (negative, out of range, not integers)."""
    gather = _of(dataset)
    if gather is None:
        return None
    n = len(dataset)

    def batch(indices):
        if type(indices) is not np.ndarray:
            if not all(type(i) is int for i in indices):
                return None
            indices = np.array(indices, np.int64)
        # Read as unsigned, negative numbers are large: one pass finds both ends.
        if not indices.size or indices.view(np.uint64).max() >= n:
            return None
        return gather(indices)

    return batch


def _of(dataset: Any) -> Gather | None:
    """The gather of a data set whose class and parts are known to be as this package made them."""
    kind = type(dataset)
    if kind is Tensor:
        return _rows(dataset) if dataset.dim() else None
    if kind is TensorDataset:
        return _all([_rows(t) for t in dataset.tensors], list)
    if kind is StackDataset and isinstance(dataset.datasets, dict):
        names = tuple(dataset.datasets)
        return _all([_of(part) for part in dataset.datasets.values()], lambda parts: dict(zip(names, parts, strict=True)))
    if kind is StackDataset:
        return _all([_of(part) for part in dataset.datasets], list)
    if kind is Subset:
        return _subset(dataset)
    if kind is ConcatDataset:
        return _concatenated(dataset)
    return None


def _rows(t: Any) -> Gather | None:
    """Rows of one tensor. (N, *), (K) -> (K, *)"""
    if type(t) is not Tensor or t.requires_grad or t.is_meta or not t.dim():
        return None
    source = t._array
    row = source.nbytes // len(source) if len(source) else 0
    if type(source) is not np.ndarray or not source.flags.c_contiguous:
        return lambda indices: t.index_select(0, wrap(indices).to(t.device))

    def gather(indices: np.ndarray) -> Tensor:
        if indices.size * row > LARGE:
            return t.index_select(0, wrap(indices))
        out = arrays.empty((indices.size, *source.shape[1:]), source.dtype)
        # The indices are in range. mode="clip" spares NumPy a second buffer, which "raise" needs to leave `out` as it was.
        source.take(indices, 0, out, "clip")
        return wrap(out)

    return gather


def _all(gathers: list[Gather | None], make: Callable[[list], Any]) -> Gather | None:
    """Several columns, in a container."""
    if not gathers or any(g is None for g in gathers):
        return None
    return lambda indices: make([g(indices) for g in gathers])  # type: ignore[misc]


def _subset(subset: Subset) -> Gather | None:
    gather = _of(subset.dataset)
    if gather is None or not len(subset):
        return None
    table = np.asarray(subset.indices)
    if table.dtype.kind != "i" or table.ndim != 1:
        return None
    table = table.astype(np.int64, copy=False)
    if table.view(np.uint64).max() >= len(subset.dataset):  # type: ignore[arg-type]
        return None
    return lambda indices: gather(table[indices])


def _concatenated(dataset: ConcatDataset) -> Gather | None:
    """Rows of TensorDatasets that have the same columns."""
    parts: Any = dataset.datasets
    if any(type(p) is not TensorDataset or not p.tensors or _of(p) is None or not p.tensors[0].is_cpu for p in parts):
        return None
    kinds = {tuple((t._array.shape[1:], t._array.dtype) for t in p.tensors) for p in parts}
    if len(kinds) != 1:
        return None
    columns = [[p.tensors[c]._array for p in parts] for c in range(len(parts[0].tensors))]
    ends = np.array(dataset.cumulative_sizes)
    starts = ends - [len(p) for p in parts]

    def gather(indices: np.ndarray) -> list[Tensor]:
        where = ends.searchsorted(indices, "right")
        batch = []
        for sources in columns:
            out = arrays.empty((indices.size, *sources[0].shape[1:]), sources[0].dtype)
            for part in np.unique(where):
                mine = where == part
                out[mine] = sources[part][indices[mine] - starts[part]]
            batch.append(wrap(out))
        return batch

    return gather
