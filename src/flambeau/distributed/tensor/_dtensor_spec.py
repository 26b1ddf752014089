"""What is known of a DTensor beside the numbers on this rank: its mesh, its placements, its whole shape."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from flambeau.distributed.device_mesh import DeviceMesh
from flambeau.distributed.tensor.placement_types import Placement, Shard, _StridedShard
from flambeau.dtypes import dtype
from flambeau.tensor import Size


class TensorMeta(NamedTuple):
    """Shape, strides and dtype of the whole tensor."""

    shape: Size
    stride: tuple[int, ...]
    dtype: dtype


@dataclass
class DTensorSpec:
    """mesh, a placement for each of its dimensions, and what the whole tensor looks like."""

    mesh: DeviceMesh
    placements: tuple[Placement, ...]
    tensor_meta: TensorMeta | None = None
    _known: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.placements = tuple(self.placements)

    def __hash__(self) -> int:
        return hash((self.mesh, self.placements, self.tensor_meta))

    def __str__(self) -> str:
        what = "" if self.tensor_meta is None else f"{str(self.tensor_meta.dtype).removeprefix('torch.')}{list(self.tensor_meta.shape)}"
        return f"Spec({what}({''.join(map(str, self.placements))}))"

    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh."""
        return self.mesh

    @property
    def shape(self) -> Size:
        """The shape of the whole tensor."""
        return self._meta.shape

    @property
    def stride(self) -> tuple[int, ...]:
        """The strides of the whole tensor."""
        return self._meta.stride

    @property
    def ndim(self) -> int:
        """How many dimensions the tensor has."""
        return len(self._meta.shape)

    @property
    def num_shards(self) -> int:
        """Into how many pieces it is cut."""
        found = 1
        for i, placement in enumerate(self.placements):
            found *= self.mesh.size(i) if placement.is_shard() else 1
        return found

    @property
    def _meta(self) -> TensorMeta:
        if self.tensor_meta is None:
            raise ValueError("the tensor_meta of this DTensorSpec is not set: it is a spec of no tensor yet")
        return self.tensor_meta

    @property
    def dim_map(self) -> list[int]:
        """For each dimension of the tensor the mesh dimension that shards it, -1 where none does."""
        found = [-1] * self.ndim
        for i, placement in enumerate(self.placements):
            if isinstance(placement, (Shard, _StridedShard)):
                if found[placement.dim] > -1:
                    raise ValueError(
                        f"tensor dim {placement.dim} is sharded by mesh dims {found[placement.dim]} and {i}: there is no dim_map for that"
                    )
                found[placement.dim] = i
        return found

    @property
    def num_shards_map(self) -> list[int]:
        """For each dimension of the tensor, into how many pieces it is cut."""
        found = [1] * self.ndim
        for i, placement in enumerate(self.placements):
            if isinstance(placement, (Shard, _StridedShard)):
                found[placement.dim] *= self.mesh.size(i)
        return found

    @property
    def sums(self) -> list[int]:
        """The mesh dimensions whose ranks have yet to be reduced."""
        return [i for i, placement in enumerate(self.placements) if placement.is_partial()]

    def is_replicated(self) -> bool:
        """Whether every rank has all of it."""
        return all(placement.is_replicate() for placement in self.placements)

    def is_sharded(self) -> bool:
        """Whether some dimension is cut."""
        return any(placement.is_shard() for placement in self.placements)

    def shallow_copy_with_tensor_meta(self, tensor_meta: TensorMeta | None) -> DTensorSpec:
        """The same for a tensor that looks otherwise."""
        return DTensorSpec(self.mesh, self.placements, tensor_meta)
