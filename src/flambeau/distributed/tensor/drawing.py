"""Random numbers on a mesh: those that one process would draw.

Every rank draws the numbers of the whole tensor and keeps those of its piece, so that replicas agree, pieces differ, and a model begun on two ranks
begins as it would on one. It costs the time of the whole draw, and the memory of it while it lasts. For that, generators have to agree: before the
first draw on a mesh the state of its first rank's generator is sent to the others; from then on it is the program's part to seed alike.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from flambeau import modes, random
from flambeau.distributed.device_mesh import DeviceMesh
from flambeau.distributed.tensor import exchange
from flambeau.distributed.tensor.placement_types import Placement, Replicate
from flambeau.distributed.tensor.redistribute import converted
from flambeau.interpreters.by_name import DisableTorchFunction
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import empty

_agreed: weakref.WeakSet[DeviceMesh] = weakref.WeakSet()


def agree(mesh: DeviceMesh) -> None:
    """Let all generators of a mesh have the state of the first rank's, once."""
    if mesh in _agreed or mesh.get_coordinate() is None:
        return
    with DisableTorchFunction():
        state = random.get_rng_state()
        on_mesh = state.to(mesh.device_type)
        for dim in range(mesh.ndim):
            on_mesh = exchange.broadcast(on_mesh, mesh, dim)
        random.set_rng_state(on_mesh.cpu())
        if mesh.device_type == "cuda":
            from flambeau import cuda

            own = cuda.get_rng_state().to("cuda")
            for dim in range(mesh.ndim):
                own = exchange.broadcast(own, mesh, dim)
            cuda.set_rng_state(own.cpu())
    _agreed.add(mesh)


def manual_seed(seed: int, device_mesh: DeviceMesh) -> None:
    """Seed the generators of a mesh alike: all its processes call it with the same number."""
    if not isinstance(device_mesh, DeviceMesh):
        raise TypeError(f"manual_seed: expected a DeviceMesh, found {type(device_mesh).__name__}")
    random.manual_seed(seed)
    _agreed.add(device_mesh)


def drawn(mesh: DeviceMesh, shape: Any, dtype: Any, placements: tuple[Placement, ...], draw: Callable[[Tensor], Tensor]) -> Tensor:
    """This rank's piece of draw(a tensor of the whole shape)."""
    agree(mesh)
    with DisableTorchFunction(), modes.no_grad():
        whole = draw(empty(tuple(shape), dtype=dtype, device=mesh.device_type))
        # A draw whose terms are to be added up later makes no sense: partial tensors are replicated before they come here.
        return converted(whole, mesh, whole.shape, (Replicate(),) * mesh.ndim, placements)


def written(x: Any, draw: Callable[[Tensor], Tensor]) -> Any:
    """`x`, a DTensor, filled with what draw(a tensor of its whole shape) writes."""
    local = drawn(x.device_mesh, x.shape, x.dtype, x.placements, draw)
    with DisableTorchFunction(), modes.no_grad():
        if x._local_tensor.numel():
            x._local_tensor.copy_(local)
    return x
