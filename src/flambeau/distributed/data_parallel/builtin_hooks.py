"""Communication hooks that are asked for by number."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any


class BuiltinCommHookType(enum.IntEnum):
    """All-reduce as it is, or in float16."""

    ALLREDUCE = 1
    FP16_COMPRESS = 2


def hook_of(kind: Any, group: Any) -> Callable:
    """hook(state, bucket) of that number."""
    from flambeau.distributed.algorithms.ddp_comm_hooks import default_hooks

    hook: Any = {
        BuiltinCommHookType.ALLREDUCE: default_hooks.allreduce_hook,
        BuiltinCommHookType.FP16_COMPRESS: default_hooks.fp16_compress_hook,
    }[BuiltinCommHookType(kind)]
    return lambda _state, bucket: hook(group, bucket)
