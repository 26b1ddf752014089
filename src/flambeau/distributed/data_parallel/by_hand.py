"""The parts of DistributedDataParallel by the names under which `torch.distributed` has them, for programs that put them together themselves."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any

from flambeau.distributed.data_parallel import replicas
from flambeau.distributed.data_parallel.assignment import FIRST_BUCKET_BYTES as _DEFAULT_FIRST_BUCKET_BYTES
from flambeau.distributed.data_parallel.assignment import assign_by_size
from flambeau.tensor import Tensor

__all__ = [
    "_DEFAULT_FIRST_BUCKET_BYTES",
    "BuiltinCommHookType",
    "_broadcast_coalesced",
    "_compute_bucket_assignment_by_size",
    "_register_builtin_comm_hook",
    "_register_comm_hook",
    "_verify_params_across_processes",
]  # fmt: skip


def _compute_bucket_assignment_by_size(
    tensors: Sequence[Tensor], bucket_size: Sequence[int], expect_sparse_gradient: Sequence[bool] = (), tensor_indices: Sequence[int] = (),
    logger: Any = None,
) -> tuple[list[list[int]], list[int]]:  # fmt: skip
    """Which tensors travel together: (their numbers by bucket, the limit in bytes each bucket was filled up to)."""
    return assign_by_size(tensors, bucket_size, expect_sparse_gradient, tensor_indices)


def _verify_params_across_processes(process_group: Any, params: Sequence[Tensor], logger: Any = None) -> None:
    """RuntimeError on all ranks, naming them, if the tensors are not as many or not of the same shapes everywhere."""
    replicas.check(process_group, params)


def _broadcast_coalesced(process_group: Any, tensors: Sequence[Tensor], buffer_size: int, src: int = 0) -> None:
    """Overwrite tensors with those of rank `src`, up to `buffer_size` bytes at once."""
    replicas.broadcast(process_group, tensors, src, buffer_size)


def _register_comm_hook(reducer: Any, state: Any, comm_hook: Callable) -> None:
    """Let hook(state, bucket) -> Future send a reducer's buckets."""
    reducer._register_comm_hook(state, comm_hook)


def _register_builtin_comm_hook(reducer: Any, comm_hook_type: Any) -> None:
    """A hook by its number."""
    reducer._register_comm_hook(None, hook_of(comm_hook_type, reducer.group))


class BuiltinCommHookType(enum.IntEnum):
    """All-reduce as it is, or in float16."""

    ALLREDUCE = 1
    FP16_COMPRESS = 2


def hook_of(kind: Any, group: Any) -> Callable:
    """hook(state, bucket) of that number."""
    from flambeau.distributed.algorithms.ddp_comm_hooks import default_hooks

    hook: Any = {
        BuiltinCommHookType.ALLREDUCE: default_hooks.allreduce_hook,
        BuiltinCommHookType.FP16_COMPRESS: default_hooks.fp16_compress_hook,
    }[BuiltinCommHookType(kind)]
    return lambda _state, bucket: hook(group, bucket)
