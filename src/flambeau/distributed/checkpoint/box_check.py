"""Whether the boxes of a plan make whole tensors: inside, apart from each other, and all of it."""

from __future__ import annotations

from math import prod

from flambeau.distributed.checkpoint.metadata import ChunkStorageMetadata, Metadata, TensorStorageMetadata
from flambeau.distributed.checkpoint.planner import SavePlan
from flambeau.distributed.checkpoint.resharding import _check_shard_metadata_pair_overlap
from flambeau.tensor import Size


def _validate_global_plan(global_plan: list[SavePlan], metadata: Metadata) -> list[str]:
    """What is wrong with a plan, a sentence for each tensor; nothing if it is right."""
    tensors = ((name, found) for name, found in metadata.state_dict_metadata.items() if isinstance(found, TensorStorageMetadata))
    return [f"{name}: {problem}" for name, found in tensors if (problem := _problem(found))]


def _problem(tensor: TensorStorageMetadata) -> str | None:
    outside = [box for box in tensor.chunks if not _check_box_bounds(tensor.size, box)]
    if outside:
        return f"the box {_shown(outside[0])} is not inside of a tensor of shape {tuple(tensor.size)}"
    pair = _overlap(tensor.chunks)
    if pair:
        return f"the boxes {_shown(pair[0])} and {_shown(pair[1])} overlap, so that two ranks would write the same elements"
    held, all_of_it = sum(prod(box.sizes) for box in tensor.chunks), prod(tensor.size)
    if held != all_of_it:
        return f"the boxes have {held} elements, and the tensor of shape {tuple(tensor.size)} has {all_of_it}: some rank does not save its part"
    return None


def _overlap(boxes: list[ChunkStorageMetadata]) -> tuple[ChunkStorageMetadata, ChunkStorageMetadata] | None:
    """Two boxes with an element in common. They are met in the order in which they begin in the first dimension, so that few are compared with each other
    when a tensor is cut there."""
    if len(boxes) < 2 or not boxes[0].sizes:
        return (boxes[0], boxes[1]) if len(boxes) > 1 else None
    open_ones: list[ChunkStorageMetadata] = []
    for box in sorted((box for box in boxes if prod(box.sizes)), key=lambda box: box.offsets[0]):
        open_ones = [other for other in open_ones if other.offsets[0] + other.sizes[0] > box.offsets[0]]
        for other in open_ones:
            if _check_box_overlap(other, box):
                return other, box
        open_ones.append(box)
    return None


def _check_box_overlap(box0: ChunkStorageMetadata, box1: ChunkStorageMetadata) -> bool:
    """Whether two boxes of a tensor have an element in common."""
    return _check_shard_metadata_pair_overlap(box0, box1)


def _check_box_bounds(outer_box_size: Size, inner_box: ChunkStorageMetadata) -> bool:
    """Whether a box is inside of a tensor of this shape."""
    sides = zip(outer_box_size, inner_box.offsets, inner_box.sizes, strict=True)
    return all(start >= 0 and size >= 0 and start + size <= outer for outer, start, size in sides)


def _shown(box: ChunkStorageMetadata) -> str:
    return f"at {tuple(box.offsets)} of sizes {tuple(box.sizes)}"
