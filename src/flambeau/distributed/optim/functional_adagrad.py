"""_FunctionalAdagrad: Adagrad with gradients that are passed in."""

from __future__ import annotations

from flambeau.distributed.optim.functional_optimizer import FunctionalOptimizer
from flambeau.optim import Adagrad
from flambeau.tensor import Tensor

__all__: list[str] = []


class _FunctionalAdagrad(FunctionalOptimizer):
    """See FunctionalOptimizer."""

    optimizer_class = Adagrad

    def __init__(
        self,
        params: list[Tensor],
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        warmup_lr_multiplier: float = 1.0,
        warmup_num_iters: float = 0.0,
        eps: float = 1e-10,
        coalesce_grad: bool = True,
        foreach: bool = False,
        fused: bool = False,
        maximize: bool = False,
        _allow_empty_param_list: bool = False,
    ) -> None:
        if (warmup_lr_multiplier, warmup_num_iters) != (1.0, 0.0):
            raise NotImplementedError("_FunctionalAdagrad: no learning rate is warmed up here: give each step its own `lr`")
        super().__init__(
            params,
            _allow_empty_param_list,
            lr=lr,
            lr_decay=lr_decay,
            weight_decay=weight_decay,
            initial_accumulator_value=initial_accumulator_value,
            eps=eps,
            foreach=foreach,
            fused=fused,
            maximize=maximize,
        )
