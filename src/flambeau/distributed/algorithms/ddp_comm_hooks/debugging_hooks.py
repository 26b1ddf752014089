"""noop_hook: how long a step takes if nothing is sent. Every rank trains on its own then."""

from __future__ import annotations

from typing import Any

from flambeau.distributed.data_parallel.grad_bucket import GradBucket
from flambeau.futures import Future, finished
from flambeau.tensor import Tensor

__all__ = ["noop_hook"]


def noop_hook(_: Any, bucket: GradBucket) -> Future[Tensor]:
    """The gradients as they are."""
    return finished(bucket.buffer())
