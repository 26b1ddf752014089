"""The seed of random numbers in DTensors."""

from __future__ import annotations

from flambeau.distributed.device_mesh import DeviceMesh
from flambeau.random import manual_seed as seed_generators

__all__ = ["manual_seed"]


def manual_seed(seed: int, device_mesh: DeviceMesh) -> None:
    """Seed the generators of this rank, which is one of the mesh. Every rank of it gives the same seed: they draw the same whole tensor, and keep a piece."""
    if device_mesh.get_coordinate() is None:
        raise RuntimeError(f"manual_seed requires the current rank to be a part of the device mesh, and it is not in {device_mesh}")
    seed_generators(seed)
