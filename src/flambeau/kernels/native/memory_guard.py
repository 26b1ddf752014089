"""Who is asked for main memory: before a large piece is taken, and when there is none.

    keep(bytes, 0)    before it is taken from the system, which may grant more than there is and kill whoever uses it: more than the machine
                      has, or than the container has left, is refused here
    keep(bytes, 1)    there was none: make room, and it will be tried again
    keep(bytes, 2)    there is none: the error, which says who has it

Nothing is noted when memory is given out; who has it is found out by looking, once it matters: see memory/.
"""

from __future__ import annotations

import gc
import mmap
from contextlib import suppress
from math import prod
from typing import Any

from flambeau.errors import HostMemoryError, explanation, host_memory_error, size
from flambeau.kernels.native import limits

LARGE = 64 << 20  # what is asked for before, as in csrc/arrays.c


def keep(nbytes: int, tries: int) -> None:
    """Let a piece of main memory be taken, make room for it, or raise HostMemoryError."""
    if tries == 0:
        if nbytes > limits.installed_memory() + limits.swap():
            raise refusal(nbytes)
        if nbytes <= limits.memory_left():
            return
        make_room()
        left = limits.memory_left()
        if nbytes > left:
            limit = size(limits.memory_limit())
            raise refusal(nbytes, f"{size(max(left, 0))} are left of the {limit} this container may use, and it would have been killed")
    elif tries == 1:
        make_room()
    else:
        raise refusal(nbytes)


def make_room() -> None:
    """Tensors in cycles that nobody can reach go, and what is kept for reuse."""
    gc.collect()
    if native is not None:
        native.pool_trim()


def refusal(nbytes: int, why: str = "") -> HostMemoryError:
    """The error for a piece of that size. `why` is empty where the system did not say."""
    installed = limits.memory()
    if nbytes <= installed:
        reserve.clear()
        try:
            return host_memory_error(nbytes, why)
        finally:
            set_aside()
    owner = "this machine has" if installed == limits.installed_memory() else "this container may use"
    return host_memory_error(nbytes, f"{owner} {size(installed)} in all", explain=False)  # whoever has it, it was too much


def as_ours(problem: MemoryError) -> MemoryError:
    """NumPy's error, or Python's, as HostMemoryError."""
    if isinstance(problem, HostMemoryError):
        return problem
    shape, dtype = getattr(problem, "shape", None), getattr(problem, "dtype", None)
    nbytes = 0 if shape is None or dtype is None else prod(shape) * dtype.itemsize
    if nbytes:
        return refusal(nbytes)
    said = f"{problem} (DefaultCPUAllocator: can't allocate memory)".strip()
    return HostMemoryError(said + explanation("cpu", 0))


reserve: list[Any] = []


def set_aside() -> None:
    """Addresses nobody uses, given back when there are no others: finding out who has the memory takes some itself. They cost no memory."""
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_ANONYMOUS") else {}
    with suppress(OSError, MemoryError):
        reserve.append(mmap.mmap(-1, 32 << 20, **private))


set_aside()


def pool() -> dict[str, int]:
    """Bytes of main memory that arrays have (`live`), that are kept for the next (`cached`), and the most that arrays had (`peak`)."""
    return {"live": 0, "cached": 0, "peak": 0} if native is None else native.pool_stats()


native: Any = None  # the compiled extension, if there is one: kernels/native/native.py says so
