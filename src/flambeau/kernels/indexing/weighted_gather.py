"""Weighted gathers along one dimension: out[i] = sum of weight[i, k] * x[place[i, k]] over the first count[i] of its taps k.

Interpolation and its derivative are such sums. The compiled loop takes x as (outer, n, inner): where `inner` is more than one element, whole
rows are scaled and added.
"""

from __future__ import annotations

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
        self._operands: dict[str, list[np.ndarray]] = {}

    def operands(self, dtype: np.dtype) -> list[np.ndarray]:
        """Counts, places and weights as the compiled loop takes them: the first element stands for all."""
        found = self._operands.get(dtype.char)
        if found is None:
            ready = self.counts.astype(np.int64), self.places.astype(np.int64), self.weights.astype(dtype)
            found = self._operands[dtype.char] = [np.ascontiguousarray(a).reshape(-1)[:1].reshape(()) for a in ready]
        return found

    def turned(self) -> Table:
        """The table of the transposed map: for each element of the input, the results that read it and how much they took."""
        taken = np.arange(self.places.shape[1]) < self.counts[:, None]
        of, _ = np.nonzero(taken)
        to, weights = self.places[taken], self.weights[taken]
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
        return _compiled(arrays.contiguous(x), dim, table, shape)
    xp = arrays.module_of(x)
    total = xp.zeros(shape, x.dtype)
    along = [-1 if d == dim else 1 for d in range(x.ndim)]
    for k in range(table.places.shape[1]):
        part = gather.take_rows(x, dim, xp.asarray(table.places[:, k])) * xp.asarray(table.weights[:, k].astype(x.dtype)).reshape(along)
        total += xp.where(xp.asarray(table.counts > k).reshape(along), part, x.dtype.type(0))  # what is no tap may be infinite
    return total


def _compiled(x: np.ndarray, dim: int, table: Table, shape: tuple[int, ...]) -> np.ndarray:
    out, inner = native.empty(shape, x.dtype), prod(shape[dim + 1 :])
    outer, n, m = prod(shape[:dim]), x.shape[dim] * inner, shape[dim] * inner
    to, of = native.strided_view(out, (outer,), (m,), 0), native.strided_view(x, (outer,), (n,), 0)  # each element stands for (n, inner)
    numbers = (float(m), float(shape[dim]), float(table.places.shape[1]), float(inner))
    if native.kernel("lines.mix").into(to, of, *table.operands(x.dtype), *numbers) is NotImplemented:
        raise TypeError(f"mix: not made for {x.dtype}")
    return out


# -- C -------------------------------------------------------------------------------------------------------------------

REALS = {"f32": ("float", "FL_F32"), "f64": ("double", "FL_F64")}


def table() -> tuple[list[str], list[str], list[str]]:
    """(C texts, declarations, rows of the launcher's table)."""
    texts, declarations, rows = [], [], []
    for kind, (real, enum) in REALS.items():
        signature = f"void FL_NAME(mix_{kind})(char *const *ptr, const int64_t *step, int64_t n, const double *param)"
        texts.append(_text(signature, real))
        declarations.append(signature + ";\n")
        rows.append(f'{{"lines.mix", FL_NAME(mix_{kind}), {enum}, 4, 4, 9, {enum}, {{{enum}, FL_I64, FL_I64, {enum}}}, 128}}')
    return texts, declarations, rows


def _text(signature: str, real: str) -> str:
    """param: elements of a piece of the result, m, taps, inner."""
    return f"""{signature} {{
    const int64_t m = (int64_t)param[1], taps = (int64_t)param[2], inner = (int64_t)param[3], *const counts = (const int64_t *)ptr[2];
    for (int64_t o = 0; o < n; o++) for (int64_t i = 0; i < m; i++) {{
        {real} *const out = ({real} *)(ptr[0] + o * step[0]) + i * inner;
        const {real} *const x = (const {real} *)(ptr[1] + o * step[1]), *const w = (const {real} *)ptr[4] + i * taps;
        const int64_t *const at = (const int64_t *)ptr[3] + i * taps, count = counts[i];
        if (inner == 1) {{
            {real} total = 0;
            for (int64_t k = 0; k < count; k++) total += w[k] * x[at[k]];
            *out = total;
            continue;
        }}
        if (count == 0) FL_IVDEP for (int64_t j = 0; j < inner; j++) out[j] = 0;
        for (int64_t k = 0; k < count; k++) {{
            const {real} *const a = x + at[k] * inner, u = w[k];
            if (k) FL_IVDEP for (int64_t j = 0; j < inner; j++) out[j] += u * a[j];
            else if (count == 1) FL_IVDEP for (int64_t j = 0; j < inner; j++) out[j] = u * a[j];
            else {{ /* the first two at once: all there are in linear interpolation */
                const {real} *const b = x + at[++k] * inner, v = w[k];
                FL_IVDEP for (int64_t j = 0; j < inner; j++) out[j] = u * a[j] + v * b[j];
            }}
        }}
    }}
}}
"""
