"""Weighted gathers along one dimension: out[i] = sum of weight[i, k] * x[place[i, k]] over the first count[i] of its taps k.

Interpolation and its derivative are such sums. Compiled, they are products of a sparse matrix, the table, with x as (outer, n, inner).
"""

from __future__ import annotations

from functools import cached_property
from math import prod

import numpy as np

from flambeau.kernels import arrays
from flambeau.kernels.arrays import Array
from flambeau.kernels.indexing import gather
from flambeau.kernels.native import native


class Table:
    """Where each of m results comes from: places and weights are (m, taps), counts (m,); `size` is that of the input."""

    def __init__(self, places: np.ndarray, weights: np.ndarray, counts: np.ndarray, size: int):
        self.places, self.weights, self.counts, self.size = places, weights, counts, size
        self._rows: dict[str, tuple] = {}

    @cached_property
    def taken(self) -> np.ndarray:
        """Which of the taps count. (m, taps)"""
        return np.arange(self.places.shape[1]) < self.counts[:, None]

    def rows(self, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The table as a sparse matrix: where its rows begin; columns, and numbers in them, the first of which stands for all."""
        found = self._rows.get(dtype.char)
        if found is None:
            crow = np.concatenate([[0], np.cumsum(self.counts)]).astype(np.int64)
            col, v = self.places[self.taken].astype(np.int64), self.weights[self.taken].astype(dtype)
            found = self._rows[dtype.char] = crow[:-1], col[:1].reshape(()), v[:1].reshape(())
        return found

    def turned(self) -> Table:
        """The table of the transposed map: for each element of the input, the results that read it and how much they took."""
        of, _ = np.nonzero(self.taken)
        to, weights = self.places[self.taken], self.weights[self.taken]
        order = np.argsort(to, kind="stable")
        to, of, weights = to[order], of[order], weights[order]
        counts = np.bincount(to, minlength=self.size)
        slot = np.arange(len(to)) - (np.cumsum(counts) - counts)[to]
        shape = (self.size, int(counts.max(initial=0)))
        places, taken_weights = np.zeros(shape, np.int64), np.zeros(shape, weights.dtype)
        places[to, slot], taken_weights[to, slot] = of, weights
        return Table(places, taken_weights, counts, len(self.counts))


def mix(x: Array, dim: int, table: Table) -> Array:
    """The weighted gather along `dim`, of float32 or float64. (*, n, *) -> (*, m, *)."""
    shape = (*x.shape[:dim], len(table.counts), *x.shape[dim + 1 :])
    if type(x) is np.ndarray and native.lib is not None and x.size and prod(shape):
        found = _compiled(arrays.contiguous(x), dim, table, shape)
        if found is not NotImplemented:
            return found
    xp = arrays.module_of(x)
    total = xp.zeros(shape, x.dtype)
    along = [-1 if d == dim else 1 for d in range(x.ndim)]
    for k in range(table.places.shape[1]):
        part = gather.take_rows(x, dim, xp.asarray(table.places[:, k])) * xp.asarray(table.weights[:, k].astype(x.dtype)).reshape(along)
        total += xp.where(xp.asarray(table.counts > k).reshape(along), part, x.dtype.type(0))  # what is no tap may be infinite
    return total


def _compiled(x: np.ndarray, dim: int, table: Table, shape: tuple[int, ...]):
    """Each row of the result, an element to the launcher, is a sum of rows of x."""
    out, inner, view = native.empty(shape, x.dtype), prod(shape[dim + 1 :]), native.strided_view
    rows, n = (prod(shape[:dim]), shape[dim]), x.shape[dim] * inner
    crow, col, v = table.rows(x.dtype)
    to, of = view(out, rows, (shape[dim] * inner, inner), 0), view(x, rows, (n, 0), 0)
    done = native.kernel("csr.product").into(to, crow, col, v, of, inner * table.places.shape[1], inner, inner * x.itemsize)
    return done if done is NotImplemented else out
