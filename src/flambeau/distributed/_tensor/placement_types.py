"""torch.distributed._tensor.placement_types: the old path of placements and of what is known of a DTensor."""

from flambeau.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from flambeau.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard, _StridedShard

_Partial = Partial

__all__ = ["DTensorSpec", "Partial", "Placement", "Replicate", "Shard", "TensorMeta", "_Partial", "_StridedShard"]
