"""torch.distributed._composable: the older home of fully_shard. The other functions that change a module in place can be imported, not used."""

from __future__ import annotations

from flambeau import import_only

WHY = (
    "of the functions that change a module in place there is fully_shard. DistributedDataParallel wraps one, and so does "
    "torch.distributed.algorithms._checkpoint.checkpoint_wrapper"
)
import_only.fill(__name__, WHY, functions="checkpoint contract replicate")
