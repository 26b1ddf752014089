"""_FunctionalAdam: Adam with gradients that are passed in."""

from __future__ import annotations

from flambeau.distributed.optim.functional_optimizer import FunctionalOptimizer
from flambeau.optim import Adam

__all__: list[str] = []


class _FunctionalAdam(
    FunctionalOptimizer, of=Adam, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, amsgrad=False, maximize=False,
    foreach=False, fused=False,
):  # fmt: skip
    """See FunctionalOptimizer."""
