"""Which piece of a tensor a rank has: pure arithmetic, at the path where libraries look for it."""

from __future__ import annotations

from collections.abc import Sequence

from flambeau.distributed.device_mesh import DeviceMesh
from flambeau.distributed.tensor.placement_types import Placement, Shard, _StridedShard

Shape = tuple[int, ...]


def local_shape_and_offset(
    shape: Sequence[int], sizes: Sequence[int], coordinate: Sequence[int] | None, placements: Sequence[Placement]
) -> tuple[Shape, Shape]:
    """(shape of the piece, where in the whole its first element is), for a mesh of these sizes. The first mesh dimension cuts first.

    A process that is not in the mesh has nothing: its piece has shape (0,).
    """
    if coordinate is None:
        return (0,), ()
    local, rows = list(shape), [0] * len(shape)
    strided = any(isinstance(p, _StridedShard) for p in placements)
    if strided:
        return _strided(shape, sizes, coordinate, placements)
    for placement, size, at in zip(placements, sizes, coordinate, strict=True):
        if isinstance(placement, Shard):
            d = placement.dim
            if not -len(shape) <= d < len(shape):
                raise RuntimeError(
                    f"Sharding dim {d} greater than tensor ndim {len(shape)}: a tensor of shape {tuple(shape)} has no such dimension"
                )
            local[d], first = Shard.local_shard_size_and_offset(local[d], size, at)
            rows[d] += first
    # Behind the end, the offset is the end of the whole.
    offsets = [
        n if own == 0 and any(p.is_shard(d) for p in placements) else at
        for d, (n, own, at) in enumerate(zip(shape, local, rows, strict=True))
    ]
    return tuple(local), tuple(offsets)


def _strided(shape: Sequence[int], sizes: Sequence[int], coordinate: Sequence[int], placements: Sequence[Placement]) -> tuple[Shape, Shape]:
    rows = [list(range(n)) if any(p.is_shard(d) for p in placements) else None for d, n in enumerate(shape)]
    for placement, size, at in zip(placements, sizes, coordinate, strict=True):
        if isinstance(placement, (Shard, _StridedShard)):
            own = rows[placement.dim]
            rows[placement.dim] = [own[i] for i in rows_of(placement, len(own), size, at)]  # type: ignore[index]
    local = tuple(n if own is None else len(own) for n, own in zip(shape, rows, strict=True))
    return local, tuple(0 if own is None else own[0] if own else n for n, own in zip(shape, rows, strict=True))


def rows_of(placement: Placement, size: int, chunks: int, rank: int) -> Sequence[int]:
    """Which of `size` rows a rank has."""
    if isinstance(placement, _StridedShard):
        return placement.rows(size, chunks, rank)
    own, first = Shard.local_shard_size_and_offset(size, chunks, rank)
    return range(first, first + own)


def compute_local_shape_and_global_offset(
    global_shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Placement]
) -> tuple[Shape, Shape]:
    """The shape of this process's piece, and where in the whole tensor it begins."""
    return local_shape_and_offset(global_shape, mesh.shape, mesh.get_coordinate(), placements)


def _compute_local_shape_and_global_offset(
    global_shape: Sequence[int],
    mesh_shape: Sequence[int],
    my_coordinate: Sequence[int] | None,
    placements: Sequence[Placement],
    skip_offset: bool = False,
) -> tuple[Shape, Shape]:
    """The same for the process at a coordinate of a mesh of this shape; without the offset if it is not needed."""
    local, offset = local_shape_and_offset(global_shape, mesh_shape, my_coordinate, placements)
    return local, () if skip_offset else offset


def compute_local_shape(global_shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Placement]) -> Shape:
    """The shape of this process's piece."""
    return compute_local_shape_and_global_offset(global_shape, mesh, placements)[0]


def compute_global_tensor_shape(shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Placement]) -> Shape:
    """The shape of the whole of which every rank has a piece of this shape."""
    whole = list(shape)
    for i, placement in enumerate(placements):
        if isinstance(placement, (Shard, _StridedShard)):
            whole[placement.dim] *= mesh.size(i)
    return tuple(whole)


def compute_global_tensor_info(tensor, mesh: DeviceMesh, placements: Sequence[Placement]) -> tuple[list[int], list[int]]:
    """The shape and strides of the whole of which `tensor` is a piece."""
    shape, stride = list(tensor.shape), list(tensor.stride())
    for i, placement in enumerate(placements):
        if isinstance(placement, (Shard, _StridedShard)):
            d = placement.dim
            shape[d] *= mesh.size(i)
            for other in range(len(stride)):
                if other != d and stride[other] >= stride[d]:  # the dimensions outside of it
                    stride[other] *= mesh.size(i)
    return shape, stride


def normalize_placements(placements: Sequence[Placement] | None, mesh: DeviceMesh, ndim: int) -> tuple[Placement, ...]:
    """Placements with dimensions counted from the front, one per mesh dimension: replicated, if none are given."""
    from flambeau.distributed.tensor.placement_types import Replicate

    if placements is None:
        return (Replicate(),) * mesh.ndim
    if isinstance(placements, Placement) or len(placements) != mesh.ndim:
        found = 1 if isinstance(placements, Placement) else len(placements)
        raise ValueError(
            f"`placements` must have the same length as `device_mesh.ndim`! Found placements length: {found}, and device_mesh.ndim: {mesh.ndim}."
        )
    return tuple(normalized(placement, ndim) for placement in placements)


def normalized(placement: Placement, ndim: int) -> Placement:
    """Shard(-1) of a matrix is Shard(1)."""
    if not isinstance(placement, Placement):
        raise RuntimeError(f"expected a Placement such as Shard(0), found {placement!r}")
    if isinstance(placement, (Shard, _StridedShard)):
        if not -ndim <= placement.dim < max(ndim, 1):
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], but got {placement.dim}): {placement!r}"
            )
        if placement.dim < 0:
            d = placement.dim + ndim
            return Shard(d) if isinstance(placement, Shard) else _StridedShard(d, split_factor=placement.split_factor)
    return placement


def compute_local_stride(global_stride: Sequence[int], mesh: DeviceMesh, placements: Sequence[Placement]) -> tuple[int, ...]:
    """The strides of pieces of equal size, lying as the whole does."""
    found = list(global_stride)
    for i, placement in enumerate(placements):
        if isinstance(placement, (Shard, _StridedShard)):
            own = global_stride[placement.dim]
            found = [s // mesh.size(i) if s > own else s for s in found]
    return tuple(found)
