"""The memory of GPUs: counters, what is kept for reuse, pools of graphs, and the error that says who has it. All of CuPy allocates from here.

The allocator itself is compiled (kernels/native/csrc/gpu_memory.c); its first lines say how it works.
"""

from __future__ import annotations

import gc
import itertools

import cupy
from cupy.cuda import Device, runtime

from flambeau import errors
from flambeau.errors import OutOfMemoryError
from flambeau.kernels.cuda import cupy_objects
from flambeau.kernels.native.native import lib

NOTHING, PEAKS, SUMS = range(3)  # what is to be counted anew
STATES = ("inactive", "active_allocated", "active_awaiting_free")
_fractions: dict[int, float] = {}


def out_of_memory(size: int) -> OutOfMemoryError:
    """The numbers that explain why there was no room."""
    index = runtime.getDevice()
    free, total = runtime.memGetInfo()
    used, reserved = allocated(index), reserved_bytes(index)
    limit = f"This process may take {amount(int(total * _fractions[index]))} of it. " if index in _fractions else ""
    return OutOfMemoryError(
        f"CUDA out of memory. Tried to allocate {amount(size)}. GPU {index} has a total capacity of {amount(total)} of which "
        f"{amount(free)} is free. {limit}Of the memory this process has reserved, {amount(used)} is held by tensors and "
        f"{amount(reserved - used)} is kept for reuse." + (errors.explanation(f"cuda:{index}", size) if size <= total else "")
    )


def amount(size: int) -> str:
    """A number of bytes as people write it."""
    power = min((size.bit_length() - 1) // 10, 3) if size else 0
    return f"{size / 1024**power:.{2 if power else 0}f} {('bytes', 'KiB', 'MiB', 'GiB')[power]}"


def no_room(size: int, tries: int) -> OutOfMemoryError | None:
    """Asked by the allocator where there is no room: first for what may be let go of, then for the error."""
    if tries == 1:
        gc.collect()  # what is in cycles nobody can reach
        return None
    return out_of_memory(size)


Memory = cupy_objects.furnish(no_room)  # the class of pieces of memory
cupy.cuda.set_allocator(lib.gpu_alloc)


# -- counters ------------------------------------------------------------------------------------------------------------


def stats(index: int, anew: int = NOTHING) -> dict[str, int]:
    """All counters of a GPU under PyTorch's names; `anew`: what starts from here again."""
    return lib.gpu_stats(index, anew)


def allocated(index: int) -> int:
    """Bytes that tensors occupy."""
    return stats(index)["allocated_bytes.all.current"]


def reserved_bytes(index: int) -> int:
    """Bytes taken from the driver."""
    return stats(index)["reserved_bytes.all.current"]


def segments() -> list[dict]:
    """The pieces taken from the driver and the blocks they are cut into, as PyTorch's `memory_snapshot` has them."""
    found = []
    for device, address, size, pool, stream, small, parts in lib.gpu_segments():
        blocks, at = [], address
        for _, length, asked, state in parts:
            blocks.append({"address": at, "size": length, "requested_size": asked, "state": STATES[state], "frames": []})
            at += length
        of = {state: sum(b["size"] for b in blocks if b["state"] == state) for state in STATES}
        found.append({
            "device": device, "address": address, "total_size": size, "allocated_size": of["active_allocated"],
            "active_size": of["active_allocated"] + of["active_awaiting_free"], "requested_size": sum(b["requested_size"] for b in blocks),
            "stream": stream, "segment_type": "small" if small else "large", "segment_pool_id": as_pair(pool), "is_expandable": False,
            "frames": [], "blocks": blocks,
        })  # fmt: skip
    return sorted(found, key=lambda s: (s["device"], s["address"]))


# -- limits --------------------------------------------------------------------------------------------------------------


def empty_cache() -> None:
    """Give memory that is kept for reuse back to the driver."""
    gc.collect()
    lib.gpu_release(-1)
    cupy.get_default_pinned_memory_pool().free_all_blocks()


def set_fraction(index: int, fraction: float) -> None:
    """Take at most this part of a GPU's memory from the driver."""
    with Device(index):
        total = runtime.memGetInfo()[1]
    _fractions[index] = fraction
    lib.gpu_limit(index, max(int(total * fraction), 1) if fraction < 1 else 0)
    if fraction == 1:
        del _fractions[index]


def fraction(index: int) -> float:
    """The part of a GPU's memory that may be taken from the driver."""
    return _fractions.get(index, 1.0)


# -- pools ---------------------------------------------------------------------------------------------------------------

# A pool is known by two numbers, as in PyTorch: (0, n) if a program asked for its handle, (n, 0) if a graph made it.
_numbers = itertools.count(1)


def new_pool(of_program: bool) -> tuple[int, int]:
    """The name of a pool that nobody has yet."""
    number = next(_numbers)
    return (0, number) if of_program else (number, 0)


def as_number(pool: tuple[int, int]) -> int:
    """A pool as compiled code calls it."""
    return pool[0] << 32 | pool[1]


def as_pair(number: int) -> tuple[int, int]:
    """The same back again."""
    return number >> 32, number & 0xFFFFFFFF


def begin(index: int, pool: tuple[int, int], capture: int = 0) -> None:
    """From now on what a capture (0: this thread) allocates on a GPU is a pool's own."""
    lib.gpu_pool_begin(index, as_number(pool), capture)


def end(index: int, pool: tuple[int, int]) -> None:
    """From now on it is everybody's again."""
    lib.gpu_pool_end(index, as_number(pool))


def release(index: int, pool: tuple[int, int]) -> None:
    """One user of a pool less. Without any, its memory can be given back when it is free."""
    lib.gpu_pool_release(index, as_number(pool))


def record_stream(array, stream: int) -> None:
    """That another stream uses an array, too: its memory is not given to others before that stream has come this far."""
    lib.gpu_record_stream(array, stream)
