"""_FunctionalAdamW: AdamW with gradients that are passed in."""

from __future__ import annotations

from flambeau.distributed.optim.functional_optimizer import FunctionalOptimizer
from flambeau.optim import AdamW

__all__: list[str] = []


class _FunctionalAdamW(
    FunctionalOptimizer, of=AdamW, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, amsgrad=False, maximize=False,
    foreach=False, fused=False,
):  # fmt: skip
    """See FunctionalOptimizer."""
