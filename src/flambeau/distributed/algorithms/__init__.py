"""torch.distributed.algorithms: ways of training with several processes that stand on collectives, and know nothing of how these work."""

from __future__ import annotations

from flambeau.distributed.algorithms.join import Join, Joinable, JoinHook

__all__ = ["Join", "JoinHook", "Joinable"]
