"""torch.distributed.autograd: derivatives through calls of functions in other processes, which there are none of (`rpc.py`)."""

from __future__ import annotations

from flambeau import import_only

__all__ = ["DistAutogradContext", "backward", "context", "get_gradients", "is_available"]

WHY = "functions cannot be called in other processes, so no derivative passes through one. torch.distributed.nn.functional has collectives with derivatives"

DistAutogradContext, context = import_only.classes("torch.distributed.autograd", "DistAutogradContext context", WHY)
backward, get_gradients = import_only.functions("torch.distributed.autograd", "backward get_gradients", WHY)


def is_available() -> bool:
    """Whether there is a distributed autograd: no."""
    return False
