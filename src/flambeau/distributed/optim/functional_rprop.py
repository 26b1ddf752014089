"""_FunctionalRprop: Rprop with gradients that are passed in."""

from __future__ import annotations

from flambeau.distributed.optim.functional_optimizer import FunctionalOptimizer
from flambeau.optim import Rprop
from flambeau.tensor import Tensor

__all__: list[str] = []


class _FunctionalRprop(FunctionalOptimizer):
    """See FunctionalOptimizer."""

    optimizer_class = Rprop

    def __init__(
        self,
        params: list[Tensor],
        lr: float = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        foreach: bool = False,
        maximize: bool = False,
        _allow_empty_param_list: bool = False,
    ) -> None:
        super().__init__(params, _allow_empty_param_list, lr=lr, etas=etas, step_sizes=step_sizes, foreach=foreach, maximize=maximize)
