"""torch.distributed.tensor.experimental._attention: attention over a sequence that lies on several processes. To be imported."""

from __future__ import annotations

from flambeau import import_only

WHY = "attention over a sequence that is cut is not implemented. Cut heads or samples instead, as ColwiseParallel does"
HERE = "torch.distributed.tensor.experimental._attention"

__all__ = ["context_parallel", "context_parallel_unshard", "set_rotate_method"]

_ContextParallel, _HeadTailLoadBalancer, _LoadBalancer, _PTRRLoadBalancer, _PerDocumentHeadTailLoadBalancer = import_only.classes(
    HERE, "_ContextParallel _HeadTailLoadBalancer _LoadBalancer _PTRRLoadBalancer _PerDocumentHeadTailLoadBalancer", WHY
)
context_parallel, context_parallel_unshard, set_rotate_method = import_only.functions(
    HERE, "context_parallel context_parallel_unshard set_rotate_method", WHY
)
_context_parallel_shard, _disable_context_parallel_dispatcher, _enable_context_parallel_dispatcher, flex_cp_allgather = (
    import_only.functions(
        HERE, "_context_parallel_shard _disable_context_parallel_dispatcher _enable_context_parallel_dispatcher flex_cp_allgather", WHY
    )
)
