"""torch.distributed.tensor.experimental: plain functions on the pieces of DTensors, and plain tensors among DTensors."""

from flambeau import import_only
from flambeau.distributed.tensor.experimental._attention import context_parallel
from flambeau.distributed.tensor.experimental.local_map import local_map
from flambeau.distributed.tensor.experimental.replication import implicit_replication

(register_sharding,) = import_only.functions(
    "torch.distributed.tensor.experimental",
    "register_sharding",
    "operations have no overloads here. Try local_map, which runs any function on this rank's pieces",
)

__all__ = ["context_parallel", "implicit_replication", "local_map", "register_sharding"]
