"""Names that PyTorch's mixed precision of DistributedDataParallel goes through. Here gradients have the parameters' own dtype when they are sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flambeau.distributed.algorithms.ddp_comm_hooks import default_hooks
from flambeau.distributed.data_parallel.grad_bucket import GradBucket
from flambeau.futures import Future
from flambeau.tensor import Tensor


@dataclass
class _AllreduceUpcastHookState:
    """The model, and the stream of casts, of which there is none on the CPU."""

    ddp_weakref: Any
    upcast_stream: Any
    wait_for_stream_enqueued: bool = False


def _reducer_allreduce_and_upcast_hook(hook_state: _AllreduceUpcastHookState, bucket: GradBucket) -> Future[Tensor]:
    """The mean over the ranks of a model with mixed precision: in its `reduce_dtype`, and back."""
    ddp = hook_state.ddp_weakref()
    policy = ddp.mixed_precision
    dtype = policy.reduce_dtype or policy.param_dtype or bucket.buffer().dtype
    return default_hooks._compress_hook(dtype, ddp.process_group, bucket)
