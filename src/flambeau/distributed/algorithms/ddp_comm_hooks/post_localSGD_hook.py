"""Gradients are averaged within a subgroup only (the GPUs of one machine), once training has settled; models are averaged over all ranks now and then.

Lin et al., Don't Use Large Mini-Batches, Use Local SGD, 2018.
"""

from __future__ import annotations

import logging
from typing import Any

from flambeau import distributed
from flambeau.distributed.algorithms.ddp_comm_hooks import default_hooks
from flambeau.distributed.data_parallel.arguments import default_group
from flambeau.distributed.data_parallel.grad_bucket import GradBucket
from flambeau.futures import Future, finished
from flambeau.tensor import Tensor

logger = logging.getLogger(__name__)


class PostLocalSGDState:
    """When to begin, and with whom.

    process_group                  all ranks; None stands for the default group
    subgroup                       those near each other; None for this machine's ranks, found from LOCAL_WORLD_SIZE
    start_localSGD_iter            the first iteration in which only the subgroup averages
    post_local_gradient_allreduce  whether the subgroup averages gradients at all from then on
    """

    __slots__ = ["iter", "post_local_gradient_allreduce", "process_group", "start_localSGD_iter", "subgroup"]

    def __init__(self, process_group: Any, subgroup: Any, start_localSGD_iter: int, post_local_gradient_allreduce: bool = True):
        logger.info("Local SGD will be started after %s iterations", start_localSGD_iter)
        self.process_group, self.subgroup = process_group, subgroup
        self.start_localSGD_iter = start_localSGD_iter
        self.post_local_gradient_allreduce = post_local_gradient_allreduce
        self.iter = 0

    def maybe_increase_iter(self, bucket: GradBucket) -> None:
        """Count an iteration when its last bucket comes."""
        if bucket.is_last():
            self.iter += 1
            if self.iter == self.start_localSGD_iter:
                logger.info("Start to apply local SGD after %s iterations.", self.iter)


def post_localSGD_hook(state: PostLocalSGDState, bucket: GradBucket) -> Future[Tensor]:
    """The mean over all ranks to begin with; later over the subgroup, or nothing at all."""
    buffer = bucket.buffer()
    if state.iter < state.start_localSGD_iter:
        state.maybe_increase_iter(bucket)
        return default_hooks._allreduce_fut(state.process_group, buffer)
    if not state.post_local_gradient_allreduce:
        return finished(buffer)
    if state.subgroup is None:
        state.subgroup = _of_this_machine()
    return default_hooks._allreduce_fut(state.subgroup, buffer)


def _of_this_machine() -> Any:
    default_group(None, None)
    return distributed.new_subgroups()[0]
