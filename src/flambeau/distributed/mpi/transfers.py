"""The collectives, as who sends which bytes to whom. Arrays are dense, one-dimensional, and of any dtype.

A reduction sends every rank the piece it is responsible for, lets it fold what arrived in the order of ranks, and sends the results round:

    rank 0   [ a0 | a1 ]      a0 + b0 ->  [ s0 | s1 ]
    rank 1   [ b0 | b1 ]      a1 + b1 ->  [ s0 | s1 ]

Each byte crosses twice, which is the least there is, each element is folded on one rank, and so has the same bits on all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from flambeau.distributed.mpi.wire import Wire

Fold = Callable[[Sequence[np.ndarray], np.ndarray], None]  # fold(parts in the order of ranks, out), where out may be one of the parts
SMALL = 4096  # bytes that all may send to all at once: one exchange instead of two
PIECE = 2 << 20  # bytes of a piece: what is folded should still be in the cache, and after each the interpreter has to be waited for


def all_reduce(wire: Wire, array: np.ndarray, fold: Fold) -> None:
    """Replace `array` by the fold of everyone's."""
    if array.nbytes <= SMALL:
        parts = np.empty((wire.size, len(array)), array.dtype)
        wire.gather(raw(array), raw(parts))
        fold(list(parts), array)
        return
    for chunk in chunks(array, wire.size):
        pieces = split(chunk, wire.size)
        reduce_piece(wire, pieces, pieces[wire.rank], fold)
        exchange(wire, [pieces[wire.rank]] * wire.size, pieces)


def reduce(wire: Wire, array: np.ndarray, root: int, fold: Fold) -> None:
    """Replace root's `array` by the fold of everyone's."""
    for chunk in chunks(array, wire.size):
        pieces = split(chunk, wire.size)
        own = pieces[wire.rank] if wire.rank == root else pieces[wire.rank].copy()
        reduce_piece(wire, pieces, own, fold)
        if wire.rank == root:
            wire.wait([wire.receive(raw(pieces[peer]), peer) for peer in wire.peers])
        else:
            wire.wait([wire.send(raw(own), root)])


def reduce_scatter(wire: Wire, parts: Sequence[np.ndarray], out: np.ndarray, fold: Fold) -> None:
    """Fill `out` with the fold of what everyone has for this rank in `parts`."""
    step = max(1, PIECE // out.itemsize)
    for start in range(0, max(map(len, parts), default=0), step):
        reduce_piece(wire, [part[start : start + step] for part in parts], out[start : start + step], fold)


def reduce_piece(wire: Wire, pieces: Sequence[np.ndarray], out: np.ndarray, fold: Fold) -> None:
    """Send everyone their piece, and fold what came for this rank into `out`."""
    came = np.empty((len(wire.peers), len(out)), out.dtype)
    receiving = [wire.receive(raw(came[i]), peer) for i, peer in enumerate(wire.peers)]
    wire.wait(receiving + [wire.send(raw(pieces[peer]), peer) for peer in wire.peers])
    parts = list(came)
    parts.insert(wire.rank, pieces[wire.rank])
    fold(parts, out)


def exchange(wire: Wire, to: Sequence[np.ndarray], out: Sequence[np.ndarray]) -> None:
    """Send to[r] to every rank r, and fill out[r] with what it sends here."""
    receiving = [wire.receive(raw(out[peer]), peer) for peer in wire.peers]
    wire.wait(receiving + [wire.send(raw(to[peer]), peer) for peer in wire.peers])
    if out[wire.rank] is not to[wire.rank]:
        out[wire.rank][:] = to[wire.rank]


def gather(wire: Wire, array: np.ndarray, root: int, out: Sequence[np.ndarray]) -> None:
    """Fill root's out[r] with the array of rank r."""
    if wire.rank == root:
        wire.wait([wire.receive(raw(out[peer]), peer) for peer in wire.peers])
        out[root][:] = array
    else:
        wire.wait([wire.send(raw(array), root)])


def scatter(wire: Wire, arrays: Sequence[np.ndarray], root: int, out: np.ndarray) -> None:
    """Fill everyone's `out` with what root has for them in `arrays`."""
    if wire.rank == root:
        wire.wait([wire.send(raw(arrays[peer]), peer) for peer in wire.peers])
        out[:] = arrays[root]
    else:
        wire.wait([wire.receive(raw(out), root)])


def raw(array: np.ndarray) -> np.ndarray:
    """The same memory as bytes."""
    return array.reshape(-1).view(np.uint8)


def split(array: np.ndarray, parts: int) -> list[np.ndarray]:
    """Views of nearly equal length."""
    bounds = [len(array) * i // parts for i in range(parts + 1)]
    return [array[start:end] for start, end in pairwise(bounds)]


def chunks(array: np.ndarray, ranks: int) -> Iterator[np.ndarray]:
    """Stretches of the array in which each rank has a piece."""
    step = ranks * max(1, PIECE // array.itemsize)
    for start in range(0, len(array), step):
        yield array[start : start + step]
