"""Parameters whose gradients all travel when that of one other parameter is there: those of embeddings with an all-reduce of their own."""

from __future__ import annotations

from typing import Any

from flambeau import modes
from flambeau.distributed import options
from flambeau.distributed.data_parallel import replicas
from flambeau.tensor import Tensor
from flambeau.tensor.node import accumulator


def install(ddp: Any, trigger: Tensor | None) -> None:
    """All-reduce the delayed parameters' gradients when `trigger` has received its own."""
    if trigger is None:
        raise ValueError("delay_all_reduce_named_params needs param_to_hook_all_reduce: the parameter whose gradient comes last")
    params = ddp._delay_all_reduce_params
    replicas.check(ddp.process_group, params)
    replicas.broadcast(ddp.process_group, [p.detach() for p in params])
    ddp._delay_handle = accumulator(trigger).register_hook(lambda _sent, _arrived: _average(ddp, params))


def _average(ddp: Any, params: list[Tensor]) -> None:
    if not ddp.require_backward_grad_sync:
        return
    with modes.recording(False):
        grads = [p.grad for p in params if p.grad is not None]
        for grad in grads:
            grad.div_(ddp.process_group.size())
        work = ddp.process_group.allreduce_coalesced(grads, options.AllreduceCoalescedOptions())
    modes.state.task.callbacks.append(work.wait)
