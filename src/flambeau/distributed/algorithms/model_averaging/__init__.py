"""torch.distributed.algorithms.model_averaging: parameters that are averaged now and then, in the place of gradients in every step."""

from __future__ import annotations
