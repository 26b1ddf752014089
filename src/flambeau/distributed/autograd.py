"""torch.distributed.autograd: derivatives through calls of functions in other processes, which there are none of (`rpc.py`)."""

from __future__ import annotations

from flambeau import import_only

WHY = "functions cannot be called in other processes, so no derivative passes through one. torch.distributed.nn.functional has collectives with derivatives"

__all__ = import_only.fill(__name__, WHY, classes="DistAutogradContext context", functions="backward get_gradients")
__all__.append("is_available")


def is_available() -> bool:
    """Whether there is a distributed autograd: no."""
    return False
