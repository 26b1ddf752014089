"""_FunctionalAdamax: Adamax with gradients that are passed in."""

from __future__ import annotations

from flambeau.distributed.optim.functional_optimizer import FunctionalOptimizer
from flambeau.optim import Adamax

__all__: list[str] = []


class _FunctionalAdamax(
    FunctionalOptimizer, of=Adamax, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, foreach=False, maximize=False,
):  # fmt: skip
    """See FunctionalOptimizer."""
