"""Other placements for a piece, at the path where libraries look for it."""

from __future__ import annotations

from flambeau.distributed.tensor._dtensor_spec import DTensorSpec
from flambeau.distributed.tensor.redistribute import converted
from flambeau.tensor import Tensor

__all__ = ["redistribute_local_tensor"]


def redistribute_local_tensor(local_tensor: Tensor, current_spec: DTensorSpec, target_spec: DTensorSpec) -> Tensor:
    """The piece of this rank as `target_spec` places it, from the piece as `current_spec` does. All ranks of the mesh call this."""
    if current_spec.mesh != target_spec.mesh:
        raise NotImplementedError("Cross device mesh comm not supported yet!")
    return converted(local_tensor, current_spec.mesh, current_spec.shape, current_spec.placements, target_spec.placements)
