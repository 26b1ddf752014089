"""torch.distributed.tensor: tensors that lie on several processes (DTensor), and how they are placed."""

from flambeau.distributed.device_mesh import DeviceMesh, init_device_mesh
from flambeau.distributed.tensor import dispatch as _dispatch  # noqa: F401 - gives DTensor its operations
from flambeau.distributed.tensor._api import DTensor, _rebuilt, distribute_module, distribute_tensor
from flambeau.distributed.tensor.factories import empty, full, ones, rand, randn, zeros
from flambeau.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard
from flambeau.serialization import add_safe_globals

add_safe_globals([_rebuilt])  # files may hold DTensors, and be read with weights_only=True

__all__ = [
    "DTensor", "DeviceMesh", "Partial", "Placement", "Replicate", "Shard", "distribute_module", "distribute_tensor", "empty", "full", "init_device_mesh",
    "ones", "rand", "randn", "zeros",
]  # fmt: skip
