"""The all-reduce as a hook, and half precision on the way.

model.register_comm_hook(None, fp16_compress_hook)       # state: the process group; None stands for all ranks
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau import dtypes
from flambeau.distributed.data_parallel.arguments import default_group
from flambeau.distributed.data_parallel.grad_bucket import GradBucket
from flambeau.futures import Future
from flambeau.tensor import Tensor

__all__ = ["allreduce_hook", "bf16_compress_hook", "bf16_compress_wrapper", "fp16_compress_hook", "fp16_compress_wrapper"]

Hook = Callable[[Any, GradBucket], Future[Tensor]]


def allreduce_hook(process_group: Any, bucket: GradBucket) -> Future[Tensor]:
    """The mean over all ranks: what happens without a hook."""
    return _allreduce_fut(process_group, bucket.buffer())


def fp16_compress_hook(process_group: Any, bucket: GradBucket) -> Future[Tensor]:
    """The mean, of gradients that travel in float16."""
    return _compress_hook(dtypes.float16, process_group, bucket)


def bf16_compress_hook(process_group: Any, bucket: GradBucket) -> Future[Tensor]:
    """The mean, of gradients that travel in bfloat16."""
    return _compress_hook(dtypes.bfloat16, process_group, bucket)


def fp16_compress_wrapper(hook: Hook) -> Hook:
    """A hook that is given float16 gradients, and whose result is cast back."""
    return _wrapped(hook, dtypes.float16)


def bf16_compress_wrapper(hook: Hook) -> Hook:
    """A hook that is given bfloat16 gradients, and whose result is cast back."""
    return _wrapped(hook, dtypes.bfloat16)


def _allreduce_fut(process_group: Any, tensor: Tensor) -> Future[Tensor]:
    """A Future of the mean over all ranks, written over the tensor."""
    group = process_group if process_group is not None else default_group(None, None)
    tensor.div_(group.size())  # before the sum, which could overflow
    return group.allreduce([tensor]).get_future().then(lambda future: future.value()[0])


def _compress_hook(dtype: Any, process_group: Any, bucket: GradBucket) -> Future[Tensor]:
    group = process_group if process_group is not None else default_group(None, None)
    buffer = bucket.buffer()
    small = buffer.to(dtype).div_(group.size())
    return group.allreduce([small]).get_future().then(lambda future: buffer.copy_(future.value()[0]))


def _wrapped(hook: Hook, dtype: Any) -> Hook:
    def compressed(state: Any, bucket: GradBucket) -> Future[Tensor]:
        buffer = bucket.buffer()
        bucket.set_buffer(buffer.to(dtype))
        return hook(state, bucket).then(lambda future: buffer.copy_(future.value()))

    return compressed
