"""Buffers: what is not learned but kept, such as the running averages of batch norm. Rank 0's are sent to all before each forward pass."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flambeau.distributed.data_parallel import replicas
from flambeau.tensor import Tensor


class _BufferCommHookLocation(enum.Enum):
    """When a buffer hook is called."""

    PRE_FORWARD = 1
    POST_FORWARD = 2


@dataclass
class _BufferCommHook:
    """hook(state, {name: buffer}), in the place of the broadcast."""

    buffer_comm_hook: Callable
    buffer_comm_hook_state: Any
    buffer_comm_hook_location: _BufferCommHookLocation


class Buffers:
    """The buffers of one DistributedDataParallel.

    named  looked up when the model is wrapped, and again before they are sent: modules may have put others in their places
    """

    def __init__(self, ddp: Any):
        self.ddp = ddp
        self.named: dict[str, Tensor] = {}
        self.look_up()

    def look_up(self) -> None:
        """Find them anew."""
        ddp = self.ddp
        self.named = {name: b for name, b in ddp.module.named_buffers() if name not in ddp.parameters_to_ignore}

    def wanted(self) -> bool:
        """Whether they are sent in this pass."""
        return bool(self.named) and self.ddp.require_forward_param_sync and self.ddp.forward_sync_buffers

    def before_forward(self) -> bool:
        hook = self.ddp.__dict__.get("buffer_hook")
        return (hook is None or hook.buffer_comm_hook_location is _BufferCommHookLocation.PRE_FORWARD) and self.wanted()

    def after_forward(self) -> bool:
        hook = self.ddp.__dict__.get("buffer_hook")
        return hook is not None and hook.buffer_comm_hook_location is _BufferCommHookLocation.POST_FORWARD and self.wanted()

    def send(self, rank: int) -> None:
        """Give all ranks the buffers of one rank of the group."""
        ddp = self.ddp
        self.look_up()
        hook = ddp.__dict__.get("buffer_hook")
        if hook is None:
            replicas.broadcast(ddp.process_group, list(self.named.values()), rank, ddp.broadcast_bucket_size)
            return
        futures = hook.buffer_comm_hook(hook.buffer_comm_hook_state, self.named)
        if futures is not None:
            ddp.reducer._install_post_backward_futures(futures)
