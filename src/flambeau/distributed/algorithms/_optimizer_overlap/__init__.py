"""torch.distributed.algorithms._optimizer_overlap: an optimizer that makes its steps while backward runs."""

from __future__ import annotations

from flambeau.distributed.algorithms._optimizer_overlap.optimizer_overlap import _as_overlapped_optim

__all__ = ["_as_overlapped_optim"]
