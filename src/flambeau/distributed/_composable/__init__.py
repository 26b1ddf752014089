"""torch.distributed._composable: the older home of fully_shard. The other functions that change a module in place can be imported, not used."""

from __future__ import annotations

from flambeau import import_only

checkpoint, contract, replicate = import_only.functions(
    "torch.distributed._composable",
    "checkpoint contract replicate",
    "of the functions that change a module in place there is fully_shard. DistributedDataParallel wraps one, and so does "
    "torch.distributed.algorithms._checkpoint.checkpoint_wrapper",
)
