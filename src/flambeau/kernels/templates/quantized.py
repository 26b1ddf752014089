"""8-bit products on arrays: weights packed once, rows quantized as they come, by the loops of print_quantized.py or in NumPy.

    y = (sum_k (q_x - zero_x) (q_w - zero_w)) scale_x scale_w + bias

The integers are exact, so both ways, all CPUs and PyTorch agree in every bit of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import prod

import numpy as np

from flambeau.kernels import arrays
from flambeau.kernels.native import native

PANEL = 64  # columns
ROWS = 48  # of a block at most: they stay near while panels of weights go by
CHUNK = 1 << 16  # elements that are quantized by one thread
STEP = 1 << 24  # products of a step of a recurrent network, up to which all steps are taken by one thread: to share each would take longer
SMALL = float(np.float32(6.1e-5))  # no scale is smaller


@dataclass
class Packed:
    """Weights (N, K) as the loops want them."""

    panels: np.ndarray  # int8 (N / 64, K / 4, 64, 4), filled up with 0
    columns: np.ndarray  # float32 (N / 64, 4, 64): scale, bias, and as int32 the sums of columns and their zero points
    shape: tuple[int, int]
    shifted: bool  # whether a zero point is not 0

    def __post_init__(self):
        self.starts = self.panels[:, :1, 0, 0].reshape(-1), self.columns[:, 0, 0]  # of each panel, for the launcher


def pack(weight: np.ndarray, scales: np.ndarray, zeros: np.ndarray, bias: np.ndarray | None) -> Packed:
    """Weights int8 (N, K), with scales and zero points (N,) or (), and a bias (N,)."""
    n, k = weight.shape
    panels = np.zeros((-(-n // PANEL), PANEL, -(-k // 4), 4), np.int8)
    panels.reshape(len(panels) * PANEL, panels.shape[2] * 4)[:n, :k] = weight
    columns = np.zeros((len(panels), 4, PANEL), np.float32)
    integers = columns.view(np.int32)
    parts = (columns, scales), (columns, 0 if bias is None else bias), (integers, weight.sum(1, dtype=np.int32)), (integers, zeros)
    for row, (to, values) in enumerate(parts):
        to[:, row] = _filled(values, n, (len(panels), PANEL), to.dtype)
    aligned = native.empty((len(panels), panels.shape[2], PANEL, 4), panels.dtype)  # no vector in two lines of the cache
    aligned[...] = panels.transpose(0, 2, 1, 3)
    return Packed(aligned, columns, (n, k), bool(np.any(zeros)))


def _filled(values, n: int, shape: tuple[int, ...], dtype) -> np.ndarray:
    full = np.zeros(prod(shape), dtype)
    full[:n] = values
    return full.reshape(shape)


def unpack(packed: Packed) -> np.ndarray:
    """The weights int8 (N, K)."""
    n, k = packed.shape
    panels = packed.panels.transpose(0, 2, 1, 3)
    return np.ascontiguousarray(panels.reshape(len(panels) * PANEL, panels.shape[2] * 4)[:n, :k])


def linear(x: np.ndarray, packed: Packed, most: int) -> np.ndarray:
    """x (rows, K) float32 -> (rows, N). Rows are quantized together, to integers from 0 to about `most`."""
    if not x.size:
        return np.array(np.broadcast_to(_per_column(packed)[1], (x.shape[0], packed.shape[0])))
    x = arrays.contiguous(x)
    return _linear(x, packed, most) if native.lib is not None else _linear_numpy(x, packed, most)


# -- by compiled loops -------------------------------------------------------------------------------------------------


def _linear(x: np.ndarray, packed: Packed, most: int) -> np.ndarray:
    quantized, chosen = rows(x, most)
    return product(quantized, chosen, packed, most)


def rows(x: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """(u8 (rows, K and more), [scale, zero point]) of x (rows, K)."""
    count, depth = x.shape
    padded = _row_of(depth)
    out, chosen = native.empty((count, padded), _U8), native.empty((2,), _F32)
    each, left = _chunks(count, depth)
    if len(left) == 1:
        parts = 0
        ranges = chosen
    else:
        parts = len(left)
        ranges = native.empty((parts, 2), _F32)
        _run("range", ranges[:, 0], x[::each, 0], left * depth, each * depth)
    _run("rows", out[::each, 0], x[::each, 0], ranges.reshape(-1)[:1], chosen[:1], left, each * depth, depth, padded, parts, most)
    if chosen[0] != chosen[0]:
        raise RuntimeError(_NAN)
    return out, chosen


def _row_of(depth: int) -> int:
    """Bytes from row to row: whole fours, and for large powers of two more, because rows so far apart meet in the same places of the cache."""
    return depth + 64 if depth % 1024 == 0 else depth + 3 & ~3


def product(quantized: np.ndarray, chosen: np.ndarray, packed: Packed, most: int) -> np.ndarray:
    """(rows, N) float32."""
    count, padded = quantized.shape
    n, k = packed.shape
    out = native.empty((count, n), _F32)
    each, left, right = _grid(count, n)
    work = each * padded / 16 * PANEL
    places = out[::each, ::PANEL], quantized[::each, :1], *packed.starts, chosen[:1], left, right
    _run("product", *places, work, padded, n, k, packed.shifted, most)
    return out


def step(cell: str, out: np.ndarray, gates: np.ndarray, sums: np.ndarray, state: np.ndarray, cells: np.ndarray | None) -> None:
    """Write the new states of a recurrent cell (rows, H) to out and, if it has two, to cells. gates and sums (rows, G H), state (rows, H)."""
    hidden = out.shape[1]
    _run(cell, out[:, 0], gates[:, 0], sums[:, 0], state[:, 0], (sums if cells is None else cells)[:, 0], 8 * hidden, hidden)


def steps(cell: str, gates, h0, c0, packed: Packed, sizes: tuple[int, ...], reverse: bool, most: int) -> tuple:
    """(outputs (rows, H), cell states or None) of all steps, on one thread. Rows and sizes are those of recurrent.py."""
    count, hidden = sizes[0], h0.shape[1]
    out, chosen = native.empty((len(gates), hidden), _F32), native.empty((1,), _F32)
    cells = None if c0 is None else native.empty(out.shape, _F32)
    flat = [x.reshape(-1)[:1] for x in (gates, native.empty((count, hidden + 3 & ~3), _U8), h0)]
    flat += [chosen if x is None else x.reshape(-1)[:1] for x in (c0, cells)]
    flat += [x.reshape(-1)[:1] for x in (packed.panels, packed.columns, native.empty((count, packed.shape[0]), _F32))]
    work = sum(sizes) * packed.panels.size / 16
    _run(f"{cell}_steps", out.reshape(-1)[:1], *flat, _facts(sizes, reverse)[:1], chosen, work, hidden, packed.shifted, most)
    if chosen[0] != chosen[0]:
        raise RuntimeError(_NAN)
    return out, cells


@lru_cache(256)
def _facts(sizes: tuple[int, ...], reverse: bool) -> np.ndarray:
    """Steps, whether they go backwards, samples, and where the rows of each step begin."""
    return np.array([len(sizes), reverse, sizes[0], 0, *accumulate(sizes)], np.int64)


_U8, _F32 = np.dtype(np.uint8), np.dtype(np.float32)
_NAN = "cannot quantize: the input has a NaN, so min is not less than or equal to max. Look for it with x.isnan()"


def _run(name: str, *operands) -> None:
    if native.kernel(f"quantized.{name}").into(*operands) is NotImplemented:
        raise AssertionError(f"quantized.{name} does not take {[getattr(x, 'shape', x) for x in operands]}")


@lru_cache(256)
def _chunks(count: int, depth: int) -> tuple[int, np.ndarray]:
    """(rows of a chunk, how many each has)."""
    each = min(count, max(1, CHUNK // depth))
    return each, np.minimum(each, count - np.arange(0, count, each))


@lru_cache(256)
def _grid(count: int, n: int) -> tuple[int, np.ndarray, np.ndarray]:
    """(rows of a block, how many each has (blocks, 1), how many columns are left at each panel)."""
    each = -(-count // -(-count // ROWS))
    return each, np.minimum(each, count - np.arange(0, count, each))[:, None], n - np.arange(0, n, PANEL)


# -- in NumPy ----------------------------------------------------------------------------------------------------------


def _linear_numpy(x: np.ndarray, packed: Packed, most: int) -> np.ndarray:
    scale, zero = choose(x, most)
    quantized = integers(x, np.float32(1) / np.float32(scale), zero, 0, 255) - zero
    scales, bias, zeros = _per_column(packed)
    sums = quantized.astype(np.float64) @ (unpack(packed).astype(np.float64) - zeros[:, None]).T  # exact up to 2^53
    return (sums.astype(np.float32).astype(np.float64) * (np.float32(scale) * scales) + bias).astype(np.float32)


def integers(x: np.ndarray, inverse, zero, low: int, high: int) -> np.ndarray:
    """round(x / scale + zero) within bounds, as float32; of two nearest integers the even one. A product and a sum, rounded once."""
    with np.errstate(all="ignore"):
        at = (x.astype(np.float64) * np.float64(inverse) + zero).astype(np.float32)
    return np.rint(np.clip(at, low, high))


def _per_column(packed: Packed) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scale, bias and zero point of each column."""
    n, columns = packed.shape[0], packed.columns
    return columns[:, 0].reshape(-1)[:n], columns[:, 1].reshape(-1)[:n], columns.view(np.int32)[:, 3].reshape(-1)[:n]


def choose(x: np.ndarray, most: int, least: int = 0) -> tuple[float, int]:
    """Scale and zero point with which the range of x, and 0, is that of the integers from `least` to `most`."""
    low, high = np.float32(min(x.min(), 0)), np.float32(max(x.max(), 0))
    if low != low or high != high:
        raise RuntimeError(_NAN)
    with np.errstate(all="ignore"):
        scale = (float(high) - float(low)) / (most - least)
        if np.float32(scale) == 0 or np.isinf(np.float32(1) / np.float32(scale)):
            scale = 0.1
        if scale < SMALL:
            wider, scale = np.float32(SMALL) / np.float32(scale), SMALL
            if low == 0:
                high = np.float32(SMALL) * np.float32(most - least)
            elif high == 0:
                low = -np.float32(SMALL) * np.float32(most - least)
            else:
                low, high = low * wider, high * wider
        left, right = abs(least) + abs(float(low) / scale), abs(most) + abs(float(high) / scale)
        zero = least - float(low) / scale if left < right else most - float(high) / scale
    return scale, int(min(max(round(zero), least), most)) if np.isfinite(zero) else least
