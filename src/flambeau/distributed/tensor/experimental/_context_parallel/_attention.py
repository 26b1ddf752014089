"""torch.distributed.tensor.experimental._context_parallel._attention: the names of `_attention`."""

from flambeau.distributed.tensor.experimental._attention import _ContextParallel as _ContextParallel
from flambeau.distributed.tensor.experimental._attention import (
    context_parallel,
    context_parallel_unshard,
    flex_cp_allgather,
    set_rotate_method,
)

__all__ = ["context_parallel", "context_parallel_unshard", "flex_cp_allgather", "set_rotate_method"]
