"""torch.distributed._composable.fsdp: fully_shard and its policies, which live in torch.distributed.fsdp."""

from flambeau.distributed.fsdp._fully_shard import *
from flambeau.distributed.fsdp._fully_shard import __all__ as __all__
