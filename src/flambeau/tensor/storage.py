"""The memory behind a tensor and all its views: one buffer, one version counter.

A fresh tensor has no `Storage` object; one is made when something needs to share it (a view, `detach`, an in-place write,
`untyped_storage()`), so that plain arithmetic does not pay for it.
"""

from __future__ import annotations

from typing import Any

from flambeau import devices
from flambeau.kernels import arrays


class Storage:
    """A buffer: `array` is the array that owns it (or starts where it starts), `version` counts in-place writes."""

    __slots__ = ("__dict__", "__weakref__", "array", "changed_at", "version")
    nbytes_: int | None = None
    owned = True  # whether other memory may be put behind it: not once NumPy has seen it
    filename: str | None = None  # of the file that writes reach
    segment: Any = None  # the anonymous_memory.Segment it lies in, if other processes can be given it
    spent = -1  # of a gradient: the version that an optimizer has made a step with, see Note [forgotten zero_grad]
    mixed = False  # of a gradient: whether it is the sum of a spent one and a new one

    def __init__(self, array):
        self.array = array
        self.version = 0
        self.changed_at: tuple | None = None  # the `errors.place` of the last in-place write that was not under no_grad

    def nbytes(self) -> int:
        """Bytes from the first to the last element of the owning array."""
        if self.nbytes_ is None:
            from flambeau.kernels import layout

            extent = layout.storage_extent(self.array.shape, arrays.element_strides(self.array))
            self.nbytes_ = extent * self.array.itemsize
        return self.nbytes_

    def data_ptr(self) -> int:
        """The address of the first byte."""
        return arrays.data_pointer(self.array) if self.nbytes() else 0

    def counted_apart(self) -> Storage:
        """The same memory, with a count of its own of the writes to it."""
        return Storage(self.array)

    def place(self) -> devices.device:
        """Where the bytes are."""
        return arrays.device_of(self.array)
