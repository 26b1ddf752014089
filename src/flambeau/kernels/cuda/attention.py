"""Attention on a GPU: that of half precision by cuDNN, if it is there and takes it (attention_graphs.py), all else by the kernels of
templates/cuda_attention.py, whose forward is one launch and whose backward two. Both remember the same of a query, so that each can go on where the other began."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from flambeau.kernels.cuda import attention_graphs
from flambeau.kernels.cuda.launch import compiled, empty, most_shared_memory, where_it_is, with_shared_memory
from flambeau.kernels.templates.cuda_attention import SIDE, bytes_of, print_attention, tile_of

LARGEST = 256  # features of a head
BLOCK = (SIDE * SIDE,)
LEADING = 3  # dimensions before (rows, columns) that have steps of their own


def takes(q, v) -> bool:
    """Whether there are kernels for q (*, L, E) and v (*, S, V): of a head that fits into the memory that a block has."""
    if q.dtype.char not in "fd" or q.ndim > LEADING + 2 or not q.size or not v.size or max(q.shape[-1], v.shape[-1]) > LARGEST:
        return False
    return bytes_of("keys", q.dtype.name, q.shape[-1], v.shape[-1]) <= most_shared_memory(q.data.device_id)


takes_halves = attention_graphs.takes
forward_of_halves = attention_graphs.forward
backward_of_halves = where_it_is(0)(attention_graphs.backward)


@where_it_is(0)
def forward(out, lse, q, k, v, mask, scale: float, causal: bool) -> None:
    """out (*, L, V) and lse (*, L), which is contiguous; the rows of all are dense, and a mask repeats to (*, L, S)."""
    _launch("forward", (out, lse, q, k, v), (out, q, k, v), mask, q.shape[-2], (q, k, v), scale, causal)


@where_it_is(0)
def backward(dq, dk, dv, grad, q, k, v, mask, out, lse, scale: float, causal: bool) -> None:
    """The gradients, of rows that are dense."""
    delta = empty(lse.shape, lse.dtype)
    _launch("queries", (dq, delta, lse, q, k, v, grad, out), (dq, q, k, v, grad, out), mask, q.shape[-2], (q, k, v), scale, causal)
    _launch("keys", (dk, dv, delta, lse, q, k, v, grad), (dk, dv, q, k, v, grad), mask, k.shape[-2], (q, k, v), scale, causal)


def _launch(which: str, given: tuple, stepped: tuple, mask, rows: int, qkv: tuple, scale: float, causal: bool) -> None:
    q, k, v = qkv
    kernel, shared, tile = _kernel(which, q.dtype.name, q.shape[-1], v.shape[-1], causal, mask is not None, q.data.device_id)
    tiles = -(-rows // tile)
    looks = tuple([a.strides for a in stepped])
    heads, sizes, *steps = _geometry(
        q.shape[:-1], k.shape[-2], tiles, q.itemsize, looks, None if mask is None else (mask.shape, mask.strides)
    )
    pointers = [a.data.ptr for a in given]
    kernel((heads * tiles,), BLOCK, (*pointers, 0 if mask is None else mask.data.ptr, sizes, *steps, scale), shared)


@lru_cache(1024)
def _geometry(shape: tuple, keys: int, tiles: int, size: int, strides: tuple, mask: tuple | None) -> tuple:
    """(number of heads, struct Sizes, a struct Steps for each operand, and one for the mask)."""
    *lead, queries = shape
    lead = [*[1] * (LEADING - len(lead)), *lead]

    def steps(given: tuple[int, ...]) -> list[int]:
        found = [s // size for s in given]
        return [*[0] * (LEADING + 2 - len(found)), *found]

    across = [0] * (LEADING + 2)
    if mask is not None:
        sizes = [*[1] * (LEADING + 2 - len(mask[0])), *mask[0]]
        across = [step if n > 1 else 0 for n, step in zip(sizes, steps(mask[1]), strict=True)]
    return int(np.prod(lead)), _struct(*lead[1:], queries, keys, tiles), *[_struct(*steps(s)) for s in strides], _struct(*across)


def _struct(*fields: int) -> np.ndarray:
    """One element that CuPy hands over by value."""
    found = np.array(fields, np.int64)
    return found.view(f"V{found.nbytes}")


@lru_cache(None)
def _kernel(which: str, dtype: str, e: int, v: int, causal: bool, masked: bool, device: int) -> tuple:
    """(kernel, bytes of shared memory, rows of a tile)"""
    name = f"fl_attention_{which}_{dtype}_{e}_{v}" + "_causal" * causal + "_masked" * masked
    kernel = compiled(print_attention, name, device, name, which, dtype, e, v, causal, masked)
    shared = bytes_of(which, dtype, e, v)
    return with_shared_memory(kernel, shared), shared, tile_of(e, v)
