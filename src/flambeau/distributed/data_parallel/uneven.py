"""A rank that has run out of data, while others have not: it makes the collectives of their passes with nothing to add.

rank with data                    rank without
"I have data": all-reduce of 1    all-reduce of 0
forward: buffers                  the same broadcast
"averages in this pass": 1 or 0   all-reduce of 0, hears the answer
backward: buckets                 all-reduce of zeros
parameters used, if asked for     all-reduce of zeros
"""

from __future__ import annotations

import weakref
from typing import Any

from flambeau.distributed import options
from flambeau.distributed.algorithms.join import JoinHook
from flambeau.distributed.data_parallel import replicas
from flambeau.distributed.reduce_op import ReduceOp
from flambeau.tensor.making.factories import tensor


class _DDPJoinHook(JoinHook):
    """Stands in for the passes of a DistributedDataParallel."""

    def __init__(self, ddp: Any, divide_by_initial_world_size: bool):
        self._ddp = weakref.ref(ddp)
        ddp._divide_by_initial_world_size = divide_by_initial_world_size
        if ddp.logger is not None:
            ddp.logger._set_uneven_input_join()

    @property
    def ddp(self) -> Any:
        return self._ddp()

    def main_hook(self) -> None:
        """The collectives of one pass."""
        ddp = self.ddp
        ddp.reducer._rebuild_buckets()
        if ddp._buffers_of_model.before_forward():
            ddp._sync_module_buffers(ddp._find_common_rank(ddp._distributed_rank, False))
        averages = ddp._check_global_requires_backward_grad_sync(is_joined_process=True)
        ddp.require_forward_param_sync = averages
        if averages:
            ddp.reducer.take_part_with_zeros()

    def post_hook(self, is_last_joiner: bool) -> None:
        """All have run out of data: those who did last have the model that has seen most."""
        ddp = self.ddp
        ddp._sync_final_model(is_last_joiner)


def announce(ddp: Any, averages: bool) -> bool:
    """Say whether this rank averages gradients in this pass, and hear whether any does."""
    said = tensor([float(averages)], device=ddp.device)
    ddp.process_group.allreduce([said], options.AllreduceOptions(asyncOp=False)).wait()
    return bool(said.item())


def largest_rank(ddp: Any, rank: int) -> int:
    """The largest rank that any rank names; -1 names none."""
    said = tensor([rank], device=ddp.device)
    ddp.process_group.allreduce([said], options.AllreduceOptions(reduceOp=ReduceOp.MAX, asyncOp=False)).wait()
    if said.item() < 0:
        raise ValueError("no rank knows which one has the model to go on with: at least one should be the last to join")
    return int(said.item())


def sync_final(ddp: Any, is_last_joiner: bool) -> None:
    """Give all ranks the model of one that joined last."""
    source = largest_rank(ddp, ddp._distributed_rank if is_last_joiner else -1)
    named = [*ddp.module.named_parameters(), *(ddp.module.named_buffers() if ddp.forward_sync_buffers else ())]
    states = [t.detach() for name, t in named if name not in ddp.parameters_to_ignore]
    replicas.broadcast(ddp.process_group, states, source, ddp.broadcast_bucket_size)
