"""_FunctionalAdagrad: Adagrad with gradients that are passed in."""

from __future__ import annotations

from typing import Any

from flambeau.distributed.optim.functional_optimizer import FunctionalOptimizer
from flambeau.optim import Adagrad

__all__: list[str] = []


class _FunctionalAdagrad(
    FunctionalOptimizer, of=Adagrad, lr=1e-2, lr_decay=0.0, weight_decay=0.0, initial_accumulator_value=0.0, warmup_lr_multiplier=1.0,
    warmup_num_iters=0.0, eps=1e-10, coalesce_grad=True, foreach=False, fused=False, maximize=False,
):  # fmt: skip
    """See FunctionalOptimizer."""

    def _options(self, given: dict[str, Any]) -> dict[str, Any]:
        if (given.pop("warmup_lr_multiplier"), given.pop("warmup_num_iters")) != (1.0, 0.0):
            raise NotImplementedError("_FunctionalAdagrad: no learning rate is warmed up here: give each step its own `lr`")
        del given["coalesce_grad"]
        return given
