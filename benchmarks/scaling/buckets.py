"""Buckets: which parameters of DistributedDataParallel travel together."""

from __future__ import annotations

from collections.abc import Sequence

FIRST = 1 << 20  # bytes: a small one, so that the link has something to do early in backward
OTHERS = 25 << 20


def assign(sizes: Sequence[int], first: int = FIRST, others: int = OTHERS) -> list[list[int]]:
    """Indices of the parameters in each bucket, in the order in which the buckets are sent.

    Gradients come about from the last parameter to the first, and are put into a bucket until it holds at least its limit.

    >>> assign([9, 4, 4, 4, 1], first=4, others=8)
    [[4, 3], [2, 1], [0]]
    """
    buckets: list[list[int]] = [[]]
    held = 0
    for index in reversed(range(len(sizes))):
        buckets[-1].append(index)
        held += sizes[index]
        if held >= (first if len(buckets) == 1 else others):
            buckets.append([])
            held = 0
    return [bucket for bucket in buckets if bucket]
