"""_NamedOptimizer, whose state dict has the names of parameters: of sharded recommendation models, which there are none of."""

from __future__ import annotations

from flambeau import import_only

(_NamedOptimizer,) = import_only.classes(
    "torch.distributed.optim.named_optimizer",
    "_NamedOptimizer",
    "optimizers whose states have the names of parameters are not in Flambeau. distributed.checkpoint.state_dict.get_optimizer_state_dict names them",
)

__all__: list[str] = []
