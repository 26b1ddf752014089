"""torch.distributed.optim: optimizers of programs with several processes, imported when they are asked for."""

from __future__ import annotations

from flambeau.doors import door

__getattr__, __dir__, __all__ = door(__name__, {
    "apply_optimizer_in_backward": "_apply_optimizer_in_backward _get_in_backward_optimizers",
    "functional_adadelta": "_FunctionalAdadelta",
    "functional_adagrad": "_FunctionalAdagrad",
    "functional_adam": "_FunctionalAdam",
    "functional_adamax": "_FunctionalAdamax",
    "functional_adamw": "_FunctionalAdamW",
    "functional_rmsprop": "_FunctionalRMSprop",
    "functional_rprop": "_FunctionalRprop",
    "functional_sgd": "_FunctionalSGD",
    "optimizer": "DistributedOptimizer",
    "post_localSGD_optimizer": "PostLocalSGDOptimizer",
    "utils": "as_functional_optim",
    "zero_redundancy_optimizer": "ZeroRedundancyOptimizer",
})  # fmt: skip
