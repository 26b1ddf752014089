"""The memory of GPUs: how much there is, who has it, and giving it back. The allocator is ours; kernels/native/csrc/gpu_memory.c says how it works."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from flambeau.cuda.choosing import gpus, index_of, is_initialized
from flambeau.kernels import arrays

__all__ = [
    "MemPool", "caching_allocator_alloc", "caching_allocator_delete", "empty_cache", "get_allocator_backend",
    "get_per_process_memory_fraction", "max_memory_allocated", "max_memory_cached", "max_memory_reserved", "mem_get_info",
    "memory_allocated", "memory_cached", "memory_reserved", "memory_snapshot", "memory_stats", "memory_stats_as_nested_dict",
    "memory_summary", "reset_accumulated_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached",
    "reset_peak_memory_stats", "set_per_process_memory_fraction", "use_mem_pool",
]  # fmt: skip

# -- counters ------------------------------------------------------------------------------------------------------------


def _counter(name: str, which: str, meaning: str) -> Callable[..., int]:
    """One of the counters below; 0 where nothing was ever used."""

    def counter(device: Any = None) -> int:
        return memory_stats(device).get(which, 0)

    counter.__name__, counter.__doc__ = name, meaning
    return counter


memory_allocated = _counter("memory_allocated", "allocated_bytes.all.current", "Bytes that tensors occupy.")
memory_reserved = _counter(
    "memory_reserved", "reserved_bytes.all.current", "Bytes taken from the driver: those of tensors, and what is kept for reuse."
)
max_memory_allocated = _counter(
    "max_memory_allocated", "allocated_bytes.all.peak", "The most bytes that tensors occupied since `reset_peak_memory_stats`."
)
max_memory_reserved = _counter(
    "max_memory_reserved", "reserved_bytes.all.peak", "The most bytes taken from the driver since `reset_peak_memory_stats`."
)
memory_cached, max_memory_cached = memory_reserved, max_memory_reserved


def memory_stats(device: Any = None) -> dict[str, int]:
    """All counters, under PyTorch's names: "allocated_bytes.all.current" and its like. Empty where nothing was ever used.

    what    allocation, allocated_bytes        of tensors;  requested_bytes: before sizes are rounded up to multiples of 512
            segment, reserved_bytes            taken from the driver
            active, active_bytes               of tensors, and of those that are gone but still used by another stream
            inactive_split, inactive_split_bytes   free parts of pieces of which other parts are in use
    where   all, small_pool (tensors of at most 1 MiB), large_pool
    when    current, peak, allocated (the sum of all that came), freed (of all that went)
    """
    return arrays.cuda().memory.stats(index_of(device)) if is_initialized() else {}


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    """The same, a dictionary for each part of a name."""
    found: dict[str, Any] = {}
    for name, value in memory_stats(device).items():
        *path, last = name.split(".")
        inner = found
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return found


def reset_peak_memory_stats(device: Any = None) -> None:
    """Start counting the peaks anew."""
    room = gpus().memory
    room.stats(index_of(device), room.PEAKS)


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Start counting anew what adds up."""
    room = gpus().memory
    room.stats(index_of(device), room.SUMS)


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats


def memory_snapshot(mempool_id: tuple[int, int] | None = None, include_traces: bool = True) -> list[dict[str, Any]]:
    """Every piece taken from the driver, and the blocks it is cut into: addresses, sizes, streams, states. Of one pool, if it is given.

    `flambeau.memory.snapshot("cuda")` says which tensors have the memory, and where they were made.
    """
    found = gpus().memory.segments()
    return [s for s in found if mempool_id is None or s["segment_pool_id"] == tuple(mempool_id)]


def get_allocator_backend() -> str:
    """Which allocator serves GPUs: a pool in this process, which PyTorch calls native."""
    return "native"


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The counters as a table."""
    room, index = gpus(), index_of(device)
    stats, (free, total) = room.memory.stats(index), mem_get_info(index)
    shown = [("Allocated memory", "allocated_bytes"), ("Active memory", "active_bytes"), ("Requested memory", "requested_bytes"),
             ("GPU reserved memory", "reserved_bytes"), ("Non-releasable memory", "inactive_split_bytes")]  # fmt: skip
    rows = [(title, *[stats[f"{name}.all.{when}"] for when in ("current", "peak", "allocated", "freed")]) for title, name in shown]
    line = "|" + "-" * 89 + "|\n"
    title = f"|{f'CUDA memory summary, device ID {index}':^89}|\n"
    refused, retried = f"CUDA OOMs: {stats['num_ooms']} ", f" cudaMalloc retries: {stats['num_alloc_retries']}"
    counts = f"|{refused:>44}|{retried:<44}|\n"
    head = f"| {'Metric':<24}|" + "".join(f"{name:>14} |" for name in ("Cur Usage", "Peak Usage", "Tot Alloc", "Tot Freed")) + "\n"
    body = "".join(f"| {name:<24}|" + "".join(f"{room.memory.amount(v):>14} |" for v in values) + "\n" for name, *values in rows)
    whole = f"| {'GPU memory, all processes':<24}|{room.memory.amount(total - free):>13} |{room.memory.amount(total):>14} |\n"
    return line + title + line + counts + line + head + line + body + line + whole + line


# -- limits --------------------------------------------------------------------------------------------------------------


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) bytes of a GPU, all processes counted."""
    room = gpus()
    with room.Device(index_of(device)):
        return room.runtime.memGetInfo()


def empty_cache() -> None:
    """Give memory that is kept for reuse back to the driver."""
    if is_initialized():
        arrays.cuda().empty_cache()


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Let this process take at most this part of a GPU's memory; beyond it, OutOfMemoryError."""
    if not isinstance(fraction, float):
        raise TypeError(f"Invalid type for fraction, a float is needed, found {type(fraction).__name__}")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    gpus().memory.set_fraction(index_of(device), fraction)


def get_per_process_memory_fraction(device: Any = None) -> float:
    """The part of a GPU's memory this process may take."""
    return gpus().memory.fraction(index_of(device))


# -- memory without tensors, and pools of one's own ----------------------------------------------------------------------


def caching_allocator_alloc(size: int, device: Any = None, stream: Any = None) -> int:
    """Memory for another library: its address, until `caching_allocator_delete`."""
    room = gpus()
    with contextlib.ExitStack() as inside:
        inside.enter_context(room.Device(index_of(device)))
        if stream is not None:
            inside.enter_context(getattr(stream, "_stream", None) or room.cupy.cuda.ExternalStream(int(stream)))
        found = room.lib.gpu_alloc(size)
    _lent[found.ptr] = found
    return found.ptr


def caching_allocator_delete(mem_ptr: int) -> None:
    """Give it back."""
    _lent.pop(mem_ptr, None)


_lent: dict[int, Any] = {}


class MemPool:
    """Memory that is taken from the driver for this pool alone: `with torch.cuda.use_mem_pool(pool): ...`."""

    def __init__(self, allocator: Any = None, use_on_oom: bool = False, no_split: bool = False):
        if allocator is not None or use_on_oom or no_split:
            raise NotImplementedError("MemPool: only pools of Flambeau's own allocator, without options, are there")
        self._index, self._room = index_of(None), gpus().memory
        self._id = self._room.new_pool(True)
        self._users = 0

    @property
    def id(self) -> tuple[int, int]:
        """Its name, which `memory_snapshot` and graphs know it by."""
        return self._id

    def use_count(self) -> int:
        """How many times it has been used, this object counted as one."""
        return self._users + 1

    def snapshot(self, include_traces: bool = True) -> list[dict[str, Any]]:
        """`memory_snapshot` of this pool."""
        return memory_snapshot(self._id)

    def __del__(self) -> None:
        for _ in range(getattr(self, "_users", 0)):
            self._room.release(self._index, self._id)


@contextlib.contextmanager
def use_mem_pool(pool: MemPool, device: Any = None) -> Iterator[None]:
    """What this thread allocates within the `with` comes from a pool."""
    index = pool._index if device is None else index_of(device)
    pool._room.begin(index, pool.id)
    pool._users += 1
    try:
        yield
    finally:
        pool._room.end(index, pool.id)
