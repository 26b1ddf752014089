"""_FunctionalRMSprop: RMSprop with gradients that are passed in."""

from __future__ import annotations

from flambeau.distributed.optim.functional_optimizer import FunctionalOptimizer
from flambeau.optim import RMSprop

__all__: list[str] = []


class _FunctionalRMSprop(
    FunctionalOptimizer, of=RMSprop, lr=1e-2, alpha=0.99, eps=1e-8, weight_decay=0.0, momentum=0.0, centered=False, foreach=False,
    maximize=False,
):  # fmt: skip
    """See FunctionalOptimizer."""
