"""torch.distributed.tensor.experimental._attention: attention over a sequence that lies on several processes. To be imported."""

from __future__ import annotations

from flambeau import import_only

__all__ = import_only.fill(
    __name__,
    "attention over a sequence that is cut is not implemented. Cut heads or samples instead, as ColwiseParallel does",
    classes="_ContextParallel _HeadTailLoadBalancer _LoadBalancer _PTRRLoadBalancer _PerDocumentHeadTailLoadBalancer",
    functions="""context_parallel context_parallel_unshard set_rotate_method _context_parallel_shard _disable_context_parallel_dispatcher
    _enable_context_parallel_dispatcher flex_cp_allgather""",
)
