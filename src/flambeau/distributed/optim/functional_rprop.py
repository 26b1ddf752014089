"""_FunctionalRprop: Rprop with gradients that are passed in."""

from __future__ import annotations

from flambeau.distributed.optim.functional_optimizer import FunctionalOptimizer
from flambeau.optim import Rprop

__all__: list[str] = []


class _FunctionalRprop(FunctionalOptimizer, of=Rprop, lr=1e-2, etas=(0.5, 1.2), step_sizes=(1e-6, 50), foreach=False, maximize=False):
    """See FunctionalOptimizer."""
