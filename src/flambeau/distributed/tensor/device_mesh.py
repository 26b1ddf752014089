"""torch.distributed.tensor.device_mesh: where DeviceMesh can be found, too."""

from flambeau.distributed.device_mesh import DeviceMesh, init_device_mesh

__all__ = ["DeviceMesh", "init_device_mesh"]
