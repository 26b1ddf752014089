"""Waiting for ranks to arrive: each sets a key of its own. Who is late is named soon, for whoever looks at the terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from datetime import timedelta

from flambeau.distributed.errors import DistStoreError
from flambeau.distributed.stores.store import Store

PATIENCE = 3.0  # seconds of silence


def wait_for(store: Store, keys: Mapping[int, str], timeout: timedelta, doing: str) -> list[int]:
    """Wait until the ranks have set their keys; the ranks that have not when time is up."""
    deadline = time.monotonic() + timeout.total_seconds()
    told = False
    while True:
        left = deadline - time.monotonic()
        try:
            store.wait(list(keys.values()), timedelta(seconds=max(left if told else min(left, PATIENCE), 0.001)))
            return []
        except DistStoreError:
            late = [rank for rank, key in keys.items() if not store.check([key])]
        if not late or time.monotonic() >= deadline:
            return late
        print(f"[flambeau] {doing} has waited {PATIENCE:g} s for {ranks(late)}", file=sys.stderr, flush=True)
        told = True


def ranks(numbers: list[int]) -> str:
    """
    >>> ranks([1]), ranks([1, 3])
    ('rank 1', 'ranks 1, 3')
    """
    return f"rank{'s' * (len(numbers) != 1)} {', '.join(map(str, numbers[:20]))}{', ...' if len(numbers) > 20 else ''}"
