"""_FunctionalSGD: SGD with gradients that are passed in."""

from __future__ import annotations

from flambeau.distributed.optim.functional_optimizer import FunctionalOptimizer
from flambeau.optim import SGD

__all__: list[str] = []


class _FunctionalSGD(
    FunctionalOptimizer, of=SGD, lr=1e-2, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False, maximize=False,
    foreach=False, fused=False,
):  # fmt: skip
    """See FunctionalOptimizer."""
