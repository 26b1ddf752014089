"""Notes from the GPU: what a kernel that met an index out of bounds writes down, and when somebody reads it.

To ask the GPU whether all indices are good would be to wait for it. So a kernel looks at every index itself, reads and writes nothing for
a bad one, and leaves a note in a few numbers of main memory that it can write to (pinned memory has the same address on both sides). Whoever
waits for the GPU anyway (item, tolist, a copy to the CPU, synchronize) looks there afterwards, which costs a read of main memory, and raises.

    CUDA_LAUNCH_BLOCKING=1    in the environment: every operation with an index waits and looks, so that the error comes from its own line
"""

from __future__ import annotations

import os

import cupy
import numpy as np
from cupy.cuda import Device

from flambeau.kernels import arrays
from flambeau.kernels.indexing import index_errors

BLOCKING = os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0")
LATER = (
    ". A GPU said so after the operation had returned: it was some earlier one, with an index. CUDA_LAUNCH_BLOCKING=1 in the environment "
    "lets the error come from its own line"
)

_pages: dict[int, tuple[np.ndarray, int]] = {}  # device -> its note and where that is


def page(device: int) -> int:
    """The address that kernels of a device get for their notes."""
    found = _pages.get(device)
    if found is None:
        import cupyx

        with Device(device):
            numbers = cupyx.empty_pinned((8,), np.int64)
        numbers[:] = 0
        found = _pages[device] = numbers, arrays.data_pointer(numbers)
    return found[1]


def look(more: str = LATER) -> None:
    """Raise what a GPU has noted, once."""
    for numbers, _ in _pages.values():
        if numbers[0]:
            _, kind, index, size, at, other, *_ = numbers.tolist()
            numbers[:] = 0
            raise index_errors.error(kind, index, size, at, other, more)


def launched() -> None:
    """To be called after a launch that may leave a note."""
    if BLOCKING:
        cupy.cuda.get_current_stream().synchronize()
        look("")


def checks_at_once() -> bool:
    """Whether a bad index is to be found before anything is written."""
    return BLOCKING
