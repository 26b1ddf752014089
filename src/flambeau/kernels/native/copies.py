"""Copies within one dtype: elements are words of their size, whatever they mean.

Small ones, and those along no dimension in particular, are left to the launcher and a loop over words. For the others there is a plan:

    lines   both arrays run through memory along the same dimension: what lies in one piece is moved in one piece, many in one loop
    tiles   they run along different ones (a transposed matrix, images that become channels-last). Every step along one would touch another line
            of the cache in the other, often all in the same few of its places: so the copy is made in tiles, turned in registers
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from flambeau.kernels.native import native

LARGE = 4096  # elements that are worth a plan; also those of a tile
LINE = 16384  # bytes: longer pieces are worth a call each
STRANGERS = {np.dtype(f"u{n}").char: np.dtype(f"i{n}") for n in (2, 4, 8)}  # dtypes the loops have never heard of, and others of their size
_copy = native.kernel("move.copy")
_straight, _lines, _tiles = (getattr(native.kernel(f"move.{name}"), "into", native.not_compiled) for name in ("copy", "lines", "turn"))


def made(out: np.ndarray, source: np.ndarray) -> bool:
    """Whether a compiled loop copied `source`, of the same dtype, to `out`, broadcasting. Not if they overlap."""
    if out.size >= LARGE and out.ndim > 1:
        plan = _plan(out.shape, out.strides, source.shape, source.strides, out.itemsize)
        if plan and not np.may_share_memory(out, source) and all([_run(part, out, source) for part in plan]):
            return True
    if _straight(out, source) is not NotImplemented:
        return True
    word = STRANGERS.get(out.dtype.char)
    return word is not None and made(out.view(word), source.view(word))


def fresh(array: np.ndarray):
    """A dense copy that keeps the order of dimensions, as results of operations do; NotImplemented where there is no compiled loop."""
    return _copy(array)


def _run(part: _Part, out: np.ndarray, source: np.ndarray) -> bool:
    there = native.strided_view(out, part.shape, part.out_steps, part.out_first)
    return part.loop(there, native.strided_view(source, part.shape, part.steps, part.first), *part.numbers) is not NotImplemented


class _Part(NamedTuple):
    """Equal pieces all over an array. Steps and offsets in elements."""

    loop: Callable
    shape: tuple[int, ...]
    out_steps: tuple[int, ...]
    steps: tuple[int, ...]
    out_first: int
    first: int
    numbers: tuple[int, ...]  # see move_loops.py


@lru_cache(1024)
def _plan(shape, out_strides, own_shape, strides, size: int) -> list[_Part]:
    """How to copy in lines or tiles; nothing if that does not apply."""
    new = len(shape) - len(own_shape)
    if new < 0 or any(m not in (1, n) for n, m in zip(shape[new:], own_shape, strict=True)) or 0 in shape:
        return []
    strides = (0,) * new + tuple(0 if m == 1 else s for s, m in zip(strides, own_shape, strict=True))
    if any(s % size for s in (*out_strides, *strides)) or min(out_strides) < 0:
        return []
    dims = _collapsed([(n, a // size, b // size) for n, a, b in zip(shape, out_strides, strides, strict=True) if n > 1])
    along_out = next((d for d in dims if d[1] == 1), None)
    along = next((d for d in dims if d[2] == 1), None)
    if along_out is None or along is None or any(d[1] == 0 for d in dims):
        return []
    others = [d for d in dims if d is not along and d is not along_out]
    if along is along_out:
        return _in_lines(along[0], others, size)
    return _in_tiles(along, along_out, others, size) if along_out[2] > 0 else []


def _in_lines(length: int, others: list, size: int) -> list[_Part]:
    if not others or length * size > LINE:
        return []
    sizes, out_steps, steps = _columns(others)
    return [_Part(_lines, sizes, out_steps, steps, 0, 0, (length, length * size))]


def _in_tiles(along: tuple, along_out: tuple, others: list, size: int) -> list[_Part]:
    """Whole tiles, then those at the edges."""
    rows, cols = along_out[0], along[0]  # as they lie in the source
    high = min(rows, 64) if cols >= 64 else min(rows, max(64, LARGE // cols // 16 * 16))
    wide = min(cols, max(64, LARGE // high // 16 * 16))
    found = []
    for row, many_rows, r in ((0, rows // high, high), (rows // high * high, 1, rows % high)):
        for col, many_cols, c in ((0, cols // wide, wide), (cols // wide * wide, 1, cols % wide)):
            if many_rows * many_cols * r * c:
                seen = [*others, (many_cols, c * along[1], c), (many_rows, r, r * along_out[2])]
                numbers = r * c, r, c, along_out[2] * size, along[1] * size
                sizes, out_steps, steps = _columns(seen)
                found.append(_Part(_tiles, sizes, out_steps, steps, row + col * along[1], row * along_out[2] + col, numbers))
    return found


def _columns(dims: list) -> tuple:
    """(sizes, steps of the result, steps of the source) of dimensions."""
    return tuple(tuple(column) for column in zip(*dims, strict=True))


def _collapsed(dims: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """(size, step of the result, step of the source) of every dimension, those that go on from another in both joined to it."""
    joined: list[tuple[int, int, int]] = []
    for n, a, b in sorted(dims, key=lambda d: d[1]):
        if joined and joined[-1][1] * joined[-1][0] == a and joined[-1][2] * joined[-1][0] == b:
            joined[-1] = (joined[-1][0] * n, *joined[-1][1:])
        else:
            joined.append((n, a, b))
    return joined
