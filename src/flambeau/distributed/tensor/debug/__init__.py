"""torch.distributed.tensor.debug: what is sent, and who has what."""

from flambeau.distributed.tensor.debug.comm_mode import CommDebugMode
from flambeau.distributed.tensor.debug.visualize import visualize_sharding

__all__ = ["CommDebugMode", "visualize_sharding"]
