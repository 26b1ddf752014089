"""What agents do together through a store: wait for each other, and exchange what they have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from flambeau.distributed.errors import DistStoreError

__all__ = ["barrier", "get_all", "store_timeout", "synchronize"]

MANY = 16  # missing ranks are named up to this number


@contextmanager
def store_timeout(store: Any, timeout: float) -> Iterator[None]:
    """Within this, the store waits for keys as many seconds."""
    before = store.timeout
    store.set_timeout(timedelta(seconds=timeout))
    try:
        yield
    finally:
        store.set_timeout(before)


def get_all(store: Any, rank: int, prefix: str, world_size: int) -> list[bytes]:
    """The values of `{prefix}0` to `{prefix}{world_size - 1}`. Rank 0 waits until all have read them: it may host the store, and end next."""
    values = store.multi_get([f"{prefix}{number}" for number in range(world_size)])
    all_have = _arrive(store, world_size, f"{prefix}/finished")
    if rank == 0:
        store.wait([all_have])
    return values


def synchronize(store: Any, data: bytes, rank: int, world_size: int, key_prefix: str, timeout: float = 300) -> list[bytes]:
    """What all ranks have given, in order. A `key_prefix` is good for one exchange."""
    with store_timeout(store, timeout):
        store.set(f"{key_prefix}{rank}", data)
        return get_all(store, rank, key_prefix, world_size)


def barrier(
    store: Any,
    world_size: int,
    key_prefix: str,
    barrier_timeout: float = 300,
    rank: int | None = None,
    rank_tracing_decoder: Callable[[int], str] | None = None,
    trace_timeout: float = 10,
) -> None:
    """Wait until `world_size` processes are here. A `key_prefix` is good for one barrier.

    Those who give their rank are told, when time is over, which ranks are missing: rank 0 learns their names (`rank_tracing_decoder` of each), the others
    that rank 0 knows.
    """
    if rank is None and rank_tracing_decoder is not None:
        raise AssertionError("barrier: a rank_tracing_decoder names missing ranks, and needs rank=")
    with store_timeout(store, barrier_timeout):
        all_here = _arrive(store, world_size, key_prefix)
        try:
            store.wait([all_here])
        except DistStoreError as problem:
            if rank is None:
                raise
            missing = _missing(store, world_size, key_prefix, rank, rank_tracing_decoder or str, trace_timeout)
            if missing is None:
                raise
            raise DistStoreError(
                f"Timed out waiting on barrier on rank {rank}, for key prefix: {key_prefix} "
                f"(world_size={world_size}, missing_ranks=[{', '.join(missing)}], timeout={barrier_timeout})"
            ) from problem


def _arrive(store: Any, world_size: int, prefix: str) -> str:
    """Be counted. The key that the last one sets."""
    last = f"{prefix}/last_member"
    if store.add(f"{prefix}/num_members", 1) == world_size:
        store.set(last, "here")
    return last


def _missing(store: Any, world_size: int, prefix: str, rank: int, name: Callable[[int], str], timeout: float) -> Iterable[str] | None:
    """Who is missing: every rank that waited leaves a trace, and rank 0 looks for them. None where nobody has looked."""
    store.set(f"{prefix}{rank}/TRACE", "here")
    looked = f"{prefix}/TRACING_GATE"
    if rank != 0:
        try:
            store.wait([looked])
        except DistStoreError:
            return None
        return [f"see rank 0 ({name(0)}), which knows them"]
    missing: list[str] = []
    for other in range(1, world_size):
        patience = timedelta(milliseconds=1) if missing else timedelta(seconds=timeout)  # whoever is late by that much is missing
        try:
            store.wait([f"{prefix}{other}/TRACE"], patience)
        except DistStoreError:
            missing.append(name(other))
        if len(missing) == MANY:
            break
    store.set(looked, "here")
    return missing
