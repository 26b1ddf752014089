"""Boxes of a tensor: where two of them meet, and which of them lie on this rank.

saved by 2 ranks      |--- 0 ---|--- 1 ---|
loaded by 3           |- 0 -|- 1 -|-- 2 --|      rank 1 reads the end of the first box and the beginning of the second
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from flambeau.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex
from flambeau.tensor import Size, Tensor

__all__: list[str] = []


def _check_shard_metadata_pair_overlap(shard1: ChunkStorageMetadata, shard2: ChunkStorageMetadata) -> bool:
    """Whether two boxes of one tensor have an element in common, as far as their sides tell."""
    sides = zip(shard1.offsets, shard1.sizes, shard2.offsets, shard2.sizes, strict=True)
    return all(start1 < start2 + size2 and start2 < start1 + size1 for start1, size1, start2, size2 in sides)


def _shards_get_overlap_region_wrt_saved_tensor(
    saved_shard: ChunkStorageMetadata, current_shard: ChunkStorageMetadata
) -> list[tuple[int, int, int, int]]:
    """Where two boxes meet: (dimension, start in the saved one, start in the current one, length) for every dimension."""
    sides = zip(saved_shard.offsets, saved_shard.sizes, current_shard.offsets, current_shard.sizes, strict=True)
    found = []
    for dim, (saved, saved_size, current, current_size) in enumerate(sides):
        start, end = max(saved, current), min(saved + saved_size, current + current_size)
        found.append((dim, start - saved, start - current, end - start))
    return found


# -- what lies here ------------------------------------------------------------------------------------------------


def is_dtensor(value: Any) -> bool:
    """Whether this is a DTensor. There can be none before its module is imported."""
    module = sys.modules.get("flambeau.distributed.tensor")
    return module is not None and isinstance(value, module.DTensor)


def local_tensor(tensor: Tensor) -> Tensor:
    """The memory of this rank behind a tensor: writing to it changes the tensor, and no history is kept."""
    if not is_dtensor(tensor):
        return tensor.detach()
    return tensor._local_tensor.detach() if hasattr(tensor, "_local_tensor") else tensor.to_local().detach()  # type: ignore[operator]


def local_boxes(tensor: Any) -> list[ChunkStorageMetadata]:
    """The boxes of the whole tensor that lie on this rank; none if the rank is no part of the tensor's mesh."""
    if not is_dtensor(tensor):
        return [ChunkStorageMetadata(Size([0] * tensor.dim()), tensor.size())]
    return [box for box, _ in _boxes_of_dtensor(tensor)]


def local_box(tensor: Any, index: MetadataIndex) -> Tensor:
    """The memory of the box that begins at `index.offset`; ValueError if it is not here."""
    if is_dtensor(tensor):
        for box, start in _boxes_of_dtensor(tensor):
            if box.offsets == index.offset:
                return _cut(local_tensor(tensor), start, box.sizes)
    elif index.offset is None or not any(index.offset):
        return local_tensor(tensor)
    here = [tuple(box.offsets) for box in local_boxes(tensor)]
    raise ValueError(f"FQN: '{index.fqn}' has no box at offset {index.offset} on this rank: those here begin at {here}")


def _cut(tensor: Tensor, starts: tuple[int, ...], sizes: Size) -> Tensor:
    for dim, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        if size != tensor.shape[dim]:
            tensor = tensor.narrow(dim, start, size)
    return tensor


def _boxes_of_dtensor(tensor: Any) -> Iterator[tuple[ChunkStorageMetadata, tuple[int, ...]]]:
    """(box of the whole tensor, where it begins in the local one) for everything that this rank has of a DTensor."""
    coordinate = tensor.device_mesh.get_coordinate()
    if coordinate is None:
        return
    stretches: list[list[range]] = [[range(size)] for size in tensor.shape]  # what this rank has of every dimension
    for mesh_dim, placement in enumerate(tensor.placements):
        if placement.is_partial():
            raise ValueError(f"a DTensor with the placement {placement} holds sums that are not finished: redistribute() it before saving")
        dim = getattr(placement, "dim", None)
        if dim is not None:
            pieces, ranks = getattr(placement, "split_factor", 1), tensor.device_mesh.size(mesh_dim)
            stretches[dim] = _shared_out(stretches[dim], pieces * ranks, range(coordinate[mesh_dim], pieces * ranks, ranks))
    local = local_tensor(tensor).shape
    held = tuple(sum(map(len, parts)) for parts in stretches)
    if held != tuple(local):
        raise ValueError(
            f"this rank should hold {held} of a DTensor of shape {tuple(tensor.shape)}, {tensor.placements}, and holds {tuple(local)}"
        )
    starts = [[sum(map(len, parts[:i])) for i in range(len(parts))] for parts in stretches]
    for parts, start in zip(product(*stretches), product(*starts), strict=True):
        yield ChunkStorageMetadata(Size([part.start for part in parts]), Size(map(len, parts))), start


def _shared_out(parts: list[range], shares: int, mine: range) -> list[range]:
    """What is left of stretches that are cut into `shares` (all of one length, the last ones shorter or empty) if only some are `mine`."""
    total = sum(map(len, parts))
    length = -(-total // shares)
    taken: list[range] = []
    for share in mine:
        low, high = min(share * length, total), min((share + 1) * length, total)
        at = 0
        for part in parts:
            piece = part[max(low - at, 0) : max(high - at, 0)]
            at += len(part)
            if piece and taken and taken[-1].stop == piece.start:
                taken[-1] = range(taken[-1].start, piece.stop)
            elif piece:
                taken.append(piece)
    end = parts[-1].stop if parts else 0
    return taken or [range(end, end)]


def narrow_tensor_by_index(tensor: Tensor, offsets: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """A box of a tensor, as a view."""
    return _cut(tensor, tuple(offsets), Size(sizes))
