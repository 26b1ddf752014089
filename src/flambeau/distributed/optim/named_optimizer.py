"""_NamedOptimizer, whose state dict has the names of parameters: of sharded recommendation models, which there are none of."""

from __future__ import annotations

from flambeau import import_only

WHY = "optimizers whose states have the names of parameters are not in Flambeau. distributed.checkpoint.state_dict.get_optimizer_state_dict names them"
__all__ = import_only.fill(__name__, WHY, classes="_NamedOptimizer")
