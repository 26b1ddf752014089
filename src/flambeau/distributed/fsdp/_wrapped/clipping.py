"""clip_grad_norm_ of a model whose gradients lie on several ranks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import inf
from typing import Any
from warnings import warn

from flambeau import distributed as dist
from flambeau.dtypes import promote_types
from flambeau.eager import bind
from flambeau.tensor import Tensor
from flambeau.tensor.making import factories


def clip(divided: Sequence[Any], whole: Sequence[Any], max_norm: float, norm_type: float, group: Any, device: Any, rank: int) -> Tensor:
    """Scale all gradients so that their norm, as one vector, is at most max_norm; the norm. Those of `divided` are parts, of `whole` the same on all ranks."""
    of_parts, of_wholes = ([p.grad for p in params if p.grad is not None] for params in (divided, whole))
    total: Any = _norm(of_parts, norm_type, device)
    rest = _norm(of_wholes, norm_type, device)
    if norm_type == inf:
        total = bind.functions["maximum"](total, rest)
        dist.all_reduce(total, op=dist.ReduceOp.MAX, group=group)
    else:
        total = total**norm_type
        dist.all_reduce(total, group=group)
        total = (total + rest**norm_type) ** (1 / norm_type)
    scale = (max_norm / (total + 1e-6)).clamp(max=1.0)
    grads = of_parts + of_wholes
    for grad in grads:
        grad.mul_(scale.to(grad.device, grad.dtype))
    if not grads:
        warn(
            f"Called FSDP.clip_grad_norm_() on rank {rank} with no gradients -- returning the total norm in the default dtype {total.dtype}",
            stacklevel=4,
        )
        return total
    return total.to(reduce(promote_types, [grad.dtype for grad in grads]))


def _norm(grads: Sequence[Tensor], norm_type: float, device: Any) -> Tensor:
    """In float32, whatever the gradients are."""
    if not grads:
        return factories.tensor(0.0, device=device)
    norm = bind.functions["linalg.vector_norm"]
    each = [norm(grad.detach().float(), norm_type).to(device) for grad in grads]
    return norm(bind.functions["stack"](each), norm_type)
