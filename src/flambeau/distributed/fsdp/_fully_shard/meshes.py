"""Meshes: which ranks divide a parameter among themselves, and which have the same pieces of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.distributed.device_mesh import DeviceMesh
from flambeau.distributed.tensor import Placement, Replicate


class Meshes:
    """A mesh, and what its dimensions are for.

    mesh           1-D: parameters are divided over it. 2-D: over the second dimension, and the ranks along the first have the same pieces
    shard_group    the ranks that have the pieces of the same parameter; None: every rank has all of it
    replicate_group   the ranks that have the same pieces; None: this one alone
    shard_size, shard_rank, replicate_size   into how many pieces parameters are divided, which of them this rank has, how many ranks have the same
    """

    def __init__(self, mesh: DeviceMesh, shard_mesh_dim: int | None = None, replicate_mesh_dim: int | None = None):
        if shard_mesh_dim is None and replicate_mesh_dim is None:
            shard_mesh_dim, replicate_mesh_dim = mesh.ndim - 1, 0 if mesh.ndim == 2 else None
        self.mesh, self.shard_mesh_dim, self.replicate_mesh_dim = mesh, shard_mesh_dim, replicate_mesh_dim
        self.shard_group = None if shard_mesh_dim is None else mesh.get_group(shard_mesh_dim)
        self.replicate_group = None if replicate_mesh_dim is None else mesh.get_group(replicate_mesh_dim)
        self.shard_size, self.shard_rank = (
            (1, 0) if shard_mesh_dim is None else (mesh.size(shard_mesh_dim), mesh.get_local_rank(shard_mesh_dim))
        )
        self.replicate_size = 1 if replicate_mesh_dim is None else mesh.size(replicate_mesh_dim)
        self.reduce_group = self.shard_group  # that of reduce-scatters: another one, if these are to run beside all-gathers

    def placements(self, cut: Placement) -> Sequence[Placement]:
        """How a parameter lies on the mesh that is `cut` over the ranks that divide it."""
        return [cut if dim == self.shard_mesh_dim else Replicate() for dim in range(self.mesh.ndim)]

    def key(self) -> tuple[Any, Any]:
        """Parameters with the same key can travel together."""
        return self.shard_group, self.replicate_group

    def divided(self, ranks: int) -> Meshes:
        """The meshes over which parameters stay divided after forward, if that is to be `ranks` of these ranks each."""
        return Meshes(DeviceMesh(self.mesh.device_type, self.mesh.mesh.view(-1, ranks)))


def after_forward(reshard: bool | int, meshes: Meshes) -> Meshes | None:
    """Over which ranks parameters are divided between forward and backward; None: they stay whole."""
    if not isinstance(reshard, (bool, int)):
        raise ValueError(
            f"reshard_after_forward should be a bool or an int representing the group size to reshard to, not {reshard}: try True or False"
        )
    size = meshes.shard_size
    if not isinstance(reshard, bool):
        if reshard < 1 or reshard > size or size % reshard:
            raise ValueError(f"If passing reshard_after_forward as an int, it should be a factor of {size}, not {reshard}")
        if 1 < reshard < size:
            return meshes.divided(reshard)
        reshard = reshard == size and size > 1
    return meshes if reshard else None
