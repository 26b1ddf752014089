"""_FunctionalRMSprop: RMSprop with gradients that are passed in."""

from __future__ import annotations

from flambeau.distributed.optim.functional_optimizer import FunctionalOptimizer
from flambeau.optim import RMSprop
from flambeau.tensor import Tensor

__all__: list[str] = []


class _FunctionalRMSprop(FunctionalOptimizer):
    """See FunctionalOptimizer."""

    optimizer_class = RMSprop

    def __init__(
        self,
        params: list[Tensor],
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        foreach: bool = False,
        maximize: bool = False,
        _allow_empty_param_list: bool = False,
    ) -> None:
        super().__init__(
            params,
            _allow_empty_param_list,
            lr=lr,
            alpha=alpha,
            eps=eps,
            weight_decay=weight_decay,
            momentum=momentum,
            centered=centered,
            foreach=foreach,
            maximize=maximize,
        )
