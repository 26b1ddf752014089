"""Steps of a ZeroRedundancyOptimizer(overlap_with_ddp=True) as soon as averaged gradients are there.

zero = ZeroRedundancyOptimizer(model.parameters(), Adam, overlap_with_ddp=True, lr=1e-3)
model.register_comm_hook(None, hook_with_zero_step(allreduce_hook, model, zero))
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from flambeau.autograd.grad_mode import no_grad
from flambeau.distributed.data_parallel.grad_bucket import GradBucket, views
from flambeau.distributed.optim.zero_redundancy_optimizer import ZeroRedundancyOptimizer
from flambeau.futures import Future
from flambeau.tensor import Tensor

__all__ = ["hook_with_zero_step", "hook_with_zero_step_interleaved"]

Hook = Callable[[Any, GradBucket], Future[Tensor]]


def hook_with_zero_step(hook: Hook, ddp: Any, zero: ZeroRedundancyOptimizer, shard_buckets: bool = False) -> Hook:
    """`hook`, and when the last bucket has been averaged a step with all gradients."""
    return _with_steps(hook, ddp, zero, each=False)


def hook_with_zero_step_interleaved(hook: Hook, ddp: Any, zero: ZeroRedundancyOptimizer, shard_buckets: bool = False) -> Hook:
    """`hook`, and a step with the gradients of each bucket as soon as this rank knows their averages."""
    return _with_steps(hook, ddp, zero, each=True)


def _with_steps(hook: Hook, ddp: Any, zero: ZeroRedundancyOptimizer, each: bool) -> Hook:
    if not zero._overlap_with_ddp:
        raise ValueError(
            "ZeroRedundancyOptimizer must be constructed with `overlap_with_ddp=True` to use this hook properly: otherwise zero.step() makes the steps"
        )
    model = weakref.ref(ddp)
    waiting: list[tuple[GradBucket, Future[Tensor]]] = []

    def with_step(state: Any, bucket: GradBucket) -> Future[Tensor]:
        assert model() is not None
        future = hook(state, bucket)
        waiting.append((bucket, future))
        if each and not bucket.is_last():
            _step(zero, [waiting[-1]])
        elif bucket.is_last():
            _step(zero, [waiting[-1]] if each else waiting)
            waiting.clear()
            with no_grad():
                zero._sync_params()
        return future

    return with_step


def _step(zero: ZeroRedundancyOptimizer, ready: list[tuple[GradBucket, Future[Tensor]]]) -> None:
    """Move this rank's parameters among those of the buckets."""
    grads: dict[int, Tensor] = {}
    for bucket, future in ready:
        params = bucket.parameters()
        result: Any = future.wait()
        flat = result[0] if isinstance(result, (list, tuple)) else result
        grads |= {id(p): grad for p, grad in zip(params, views(flat, params), strict=True)}
    own = [p for group in zero.optim.param_groups for p in group["params"]]
    if any(id(p) in grads for p in own):
        with no_grad():
            zero._local_step(gradients=[grads.get(id(p)) for p in own])
