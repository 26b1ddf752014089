"""_FunctionalAdadelta: Adadelta with gradients that are passed in."""

from __future__ import annotations

from flambeau.distributed.optim.functional_optimizer import FunctionalOptimizer
from flambeau.optim import Adadelta

__all__: list[str] = []


class _FunctionalAdadelta(FunctionalOptimizer, of=Adadelta, lr=1.0, rho=0.9, eps=1e-6, weight_decay=0.0, foreach=False, maximize=False):
    """See FunctionalOptimizer."""
