"""_FunctionalAdadelta: Adadelta with gradients that are passed in."""

from __future__ import annotations

from flambeau.distributed.optim.functional_optimizer import FunctionalOptimizer
from flambeau.optim import Adadelta
from flambeau.tensor import Tensor

__all__: list[str] = []


class _FunctionalAdadelta(FunctionalOptimizer):
    """See FunctionalOptimizer."""

    optimizer_class = Adadelta

    def __init__(
        self,
        params: list[Tensor],
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        foreach: bool = False,
        maximize: bool = False,
        _allow_empty_param_list: bool = False,
    ) -> None:
        super().__init__(
            params, _allow_empty_param_list, lr=lr, rho=rho, eps=eps, weight_decay=weight_decay, foreach=foreach, maximize=maximize
        )
