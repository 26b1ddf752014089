"""torch.distributed.algorithms._comm_hooks: what happens to a single gradient of a sharded model instead of the plain collective."""

from __future__ import annotations

from flambeau.distributed.algorithms._comm_hooks import default_hooks

LOW_PRECISION_HOOKS = [default_hooks.fp16_compress_hook, default_hooks.bf16_compress_hook]
