"""torch.distributed._composable.fsdp: fully_shard and its policies, which live in torch.distributed.fsdp."""

from flambeau.distributed.fsdp import (
    CPUOffloadPolicy as CPUOffloadPolicy,
)
from flambeau.distributed.fsdp import (
    FSDPModule as FSDPModule,
)
from flambeau.distributed.fsdp import (
    MixedPrecisionPolicy as MixedPrecisionPolicy,
)
from flambeau.distributed.fsdp import (
    OffloadPolicy as OffloadPolicy,
)
from flambeau.distributed.fsdp import (
    UnshardHandle as UnshardHandle,
)
from flambeau.distributed.fsdp import (
    fully_shard as fully_shard,
)
from flambeau.distributed.fsdp import (
    register_fsdp_forward_method as register_fsdp_forward_method,
)
