"""torch.distributed.optim: optimizers of programs with several processes, imported when they are asked for."""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import Any

HOMES = {
    "DistributedOptimizer": "optimizer",
    "PostLocalSGDOptimizer": "post_localSGD_optimizer",
    "ZeroRedundancyOptimizer": "zero_redundancy_optimizer",
    "_apply_optimizer_in_backward": "apply_optimizer_in_backward",
    "_get_in_backward_optimizers": "apply_optimizer_in_backward",
    "_FunctionalAdadelta": "functional_adadelta",
    "_FunctionalAdagrad": "functional_adagrad",
    "_FunctionalAdam": "functional_adam",
    "_FunctionalAdamW": "functional_adamw",
    "_FunctionalAdamax": "functional_adamax",
    "_FunctionalRMSprop": "functional_rmsprop",
    "_FunctionalRprop": "functional_rprop",
    "_FunctionalSGD": "functional_sgd",
    "as_functional_optim": "utils",
}
__all__ = ["DistributedOptimizer", "PostLocalSGDOptimizer", "ZeroRedundancyOptimizer", "as_functional_optim"]


def __getattr__(name: str) -> Any:
    home = HOMES.get(name)
    if home is not None:
        found = globals()[name] = getattr(_import_module(f"{__name__}.{home}"), name)
        return found
    if name in {*HOMES.values(), "functional_optimizer"}:
        return _import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
