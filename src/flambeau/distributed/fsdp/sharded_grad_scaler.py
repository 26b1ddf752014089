"""torch.distributed.fsdp.sharded_grad_scaler: a GradScaler for models whose parameters are divided among ranks. To be imported, not used yet."""

from __future__ import annotations

from flambeau import import_only
from flambeau.distributed.fsdp import WHY

__all__ = ["ShardedGradScaler"]

(ShardedGradScaler,) = import_only.classes("torch.distributed.fsdp.sharded_grad_scaler", "ShardedGradScaler", WHY)
