"""SparseAdam: announced, not available."""

from __future__ import annotations

from flambeau.optim.optimizer import Optimizer

__all__ = ["SparseAdam"]


class SparseAdam(Optimizer):
    """Adam that moves only the elements a sparse gradient names. There are no sparse gradients here: it cannot be made."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, maximize=False):
        raise NotImplementedError("SparseAdam moves parameters by sparse gradients, which do not exist here. Try Adam")

    def step(self, closure=None):
        """Not available."""
        raise NotImplementedError("SparseAdam is not available: see its class")
