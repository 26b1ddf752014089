"""The norm of many DTensors together, and all of them multiplied: on this rank's pieces in a launch or two, with one number sent.

`nn.utils.clip_grad_norm_` asks for it. What this does not know, several meshes or placements, goes tensor by tensor.
"""

from __future__ import annotations

from collections.abc import Sequence

from flambeau import modes
from flambeau.distributed.tensor._api import DTensor, wrapped
from flambeau.distributed.tensor._dtensor_spec import DTensorSpec
from flambeau.distributed.tensor.pieces import meta_of
from flambeau.distributed.tensor.placement_types import Replicate, _NormPartial
from flambeau.eager import updates
from flambeau.tensor import Tensor


def total_norm(tensors: Sequence[Tensor], order: float) -> DTensor | None:
    """The norm of all elements: a DTensor of which every rank has the norm of its pieces. None if that is not how it adds up."""
    first = tensors[0]
    if not isinstance(first, DTensor) or not first.numel() or order in (0.0, float("inf"), float("-inf")):
        return None
    spec = first._spec
    if not all(isinstance(t, DTensor) and t._spec.mesh == spec.mesh and t._spec.placements == spec.placements for t in tensors):
        return None
    if any(p.is_partial() for p in spec.placements):
        return None
    pieces = [t._local_tensor for t in tensors if t._local_tensor.numel()]  # type: ignore[attr-defined]
    found = updates.total_norm(pieces, order) if pieces else first._local_tensor.new_zeros(())
    if found is None:
        return None
    placements = tuple(_NormPartial(order) if p.is_shard() else Replicate() for p in spec.placements)
    return wrapped(found, DTensorSpec(spec.mesh, placements, meta_of(found)))


def clip(tensors: Sequence[Tensor], total: Tensor, most: float) -> bool:
    """Multiply all by most / (total + 1e-6) in place, if that is less than one; False where tensors are to be asked one by one."""
    if not all(isinstance(t, DTensor) and not any(p.is_partial() for p in t.placements) for t in tensors):
        return False
    with modes.no_grad():
        plain = total.full_tensor() if isinstance(total, DTensor) else total
    pieces = [t._local_tensor for t in tensors if t._local_tensor.numel()]  # type: ignore[attr-defined]
    if not pieces or updates.clip(pieces, plain, most):
        return True
    factor = (most / (plain + 1e-6)).clamp(max=1.0)
    for piece in pieces:
        piece.mul_(factor.to(piece.device))
    return True
