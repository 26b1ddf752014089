"""_FunctionalSGD: SGD with gradients that are passed in."""

from __future__ import annotations

from flambeau.distributed.optim.functional_optimizer import FunctionalOptimizer
from flambeau.optim import SGD
from flambeau.tensor import Tensor

__all__: list[str] = []


class _FunctionalSGD(FunctionalOptimizer):
    """See FunctionalOptimizer."""

    optimizer_class = SGD

    def __init__(
        self,
        params: list[Tensor],
        lr: float = 1e-2,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        maximize: bool = False,
        foreach: bool = False,
        fused: bool = False,
        _allow_empty_param_list: bool = False,
    ) -> None:
        super().__init__(
            params,
            _allow_empty_param_list,
            lr=lr,
            momentum=momentum,
            dampening=dampening,
            weight_decay=weight_decay,
            nesterov=nesterov,
            maximize=maximize,
            foreach=foreach,
            fused=fused,
        )
