"""torch.distributed.algorithms._quantization: collectives of tensors that travel in half precision."""

from __future__ import annotations
