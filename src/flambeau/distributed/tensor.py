"""torch.distributed.tensor: tensors that lie on several processes. There are none: the types can be asked for, and nothing is of them."""

from __future__ import annotations

from flambeau import import_only
from flambeau.distributed import WHY
from flambeau.distributed.device_mesh import DeviceMesh, init_device_mesh

DTensor, Partial, Placement, Replicate, Shard = import_only.classes(
    "torch.distributed.tensor", "DTensor Partial Placement Replicate Shard", WHY
)
distribute_module, distribute_tensor = import_only.functions("torch.distributed.tensor", "distribute_module distribute_tensor", WHY)

__all__ = [
    "DTensor", "DeviceMesh", "Partial", "Placement", "Replicate", "Shard", "distribute_module", "distribute_tensor", "init_device_mesh",
]  # fmt: skip
