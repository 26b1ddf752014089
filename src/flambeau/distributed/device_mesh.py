"""torch.distributed.device_mesh: processes arranged in a grid. There are none: the type can be asked for, and nothing is of it."""

from __future__ import annotations

from flambeau import import_only
from flambeau.distributed import WHY

(DeviceMesh,) = import_only.classes("torch.distributed.device_mesh", "DeviceMesh", WHY)
(init_device_mesh,) = import_only.functions("torch.distributed.device_mesh", "init_device_mesh", WHY)

__all__ = ["DeviceMesh", "init_device_mesh"]
