"""Which gradients travel together: tensors of one dtype and device, in order, until a bucket has reached its size.

>>> assign_by_size([torch.empty(4), torch.empty(5), torch.empty(2)], [20, 40])
([[0, 1], [2]], [20, 40])
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flambeau.tensor import Tensor

MEBIBYTE = 1024 * 1024
FIRST_BUCKET_BYTES = MEBIBYTE  # small: the sooner the first bucket is full, the sooner there is something to send
BUCKET_MEBIBYTES = 25


def assign_by_size(
    tensors: Sequence[Tensor], limits: Sequence[int], expect_sparse: Sequence[bool] = (), indices: Sequence[int] = ()
) -> tuple[list[list[int]], list[int]]:
    """(the tensors' numbers bucket by bucket, the limit in bytes each bucket was filled up to).

    limits   in bytes: of the first bucket, the second and so on, the last one for all that follow. Each dtype on each device begins anew
    indices  the numbers of the tensors, where they are not 0, 1, 2, ...: then buckets come in the order in which they were filled
    """
    if not tensors:
        raise RuntimeError("no tensors were given: there is nothing to share out among buckets")
    filling: dict[Any, tuple[list[int], int]] = {}  # kind -> the bucket being filled, and its bytes
    limit_of: dict[Any, int] = {}  # kind -> which of the limits it has come to
    done: list[tuple[list[int], int]] = []
    for at, tensor in enumerate(tensors):
        number = indices[at] if indices else at
        if expect_sparse and expect_sparse[number]:
            done.append(([number], 0))
            continue
        kind = (tensor.dtype, tensor.device)
        bucket, size = filling.get(kind, ([], 0))
        bucket.append(number)
        size += tensor.numel() * tensor.element_size()
        filling[kind] = bucket, size
        step = limit_of.setdefault(kind, 0)
        if size >= limits[step]:
            done.append((bucket, limits[step]))
            del filling[kind]
            limit_of[kind] = min(step + 1, len(limits) - 1)
    done += [(bucket, limits[limit_of[kind]]) for kind, (bucket, _) in filling.items()]
    if not indices:
        done.sort(key=lambda pair: min(pair[0]))
    return [bucket for bucket, _ in done], [limit for _, limit in done]


@dataclass(frozen=True)
class BucketCapacities:
    """How large buckets may grow, in bytes."""

    bucket_bytes_cap: int
    per_bucket_bytes_caps: tuple[int, ...]
    first_bucket_bytes_cap: int

    @classmethod
    def create(cls, bucket_cap_mb: float | None, bucket_cap_mb_list: Sequence[float] | None) -> BucketCapacities:
        """From the arguments of DistributedDataParallel, in mebibytes."""
        each = tuple(_in_bytes("bucket_cap_mb_list", mb) for mb in bucket_cap_mb_list or ())
        if each:
            return cls(max(each), each, max(each))
        if bucket_cap_mb is None:
            return cls(BUCKET_MEBIBYTES * MEBIBYTE, (), FIRST_BUCKET_BYTES)
        cap = _in_bytes("bucket_cap_mb", bucket_cap_mb)
        return cls(cap, (), cap)

    @property
    def bucket_cap_mb(self) -> int:
        return self.bucket_bytes_cap // MEBIBYTE

    @property
    def has_custom_per_bucket_caps(self) -> bool:
        return bool(self.per_bucket_bytes_caps)

    def compute_bucket_size_limits(self, static_graph: bool, find_unused_parameters: bool) -> tuple[list[int], list[int]]:
        """(the limits of the first buckets, those given one by one).

        Where buckets will be made anew after the first backward, the first ones need not be small: there is one for each dtype.
        """
        each = list(self.per_bucket_bytes_caps)
        if each:
            return each, each
        return ([sys.maxsize] if static_graph or not find_unused_parameters else self.limits), []

    @property
    def limits(self) -> list[int]:
        """The limits of the buckets that stay."""
        if self.per_bucket_bytes_caps:
            return list(self.per_bucket_bytes_caps)
        return list(dict.fromkeys((self.first_bucket_bytes_cap, self.bucket_bytes_cap)))


def _in_bytes(name: str, mebibytes: Any) -> int:
    if not isinstance(mebibytes, (int, float)):
        raise ValueError(f"{name} is a number of mebibytes, found {mebibytes!r}: try {name}=25 or leave it out")
    return int(mebibytes * MEBIBYTE)
