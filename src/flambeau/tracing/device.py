"""How long operations take on a GPU: a pair of CUDA events around each, read after the run.

Operations are queued, so the time they take on the CPU says nothing about them. Events are marks in the same queue; between recording and
reading them nothing waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns as now
from typing import Any

from flambeau.kernels import arrays
from flambeau.tensor import Tensor


class Clock:
    """Times on the device, in ns of the clock of the CPU."""

    def __init__(self) -> None:
        self.cuda: Any = arrays.cuda().cupy.cuda
        self.cuda.Device().synchronize()
        self.zero = self.mark()
        self.zero.synchronize()
        self.zero_ns = now()
        self.pairs: list[tuple[Any, Any]] = []
        self.spans: list[tuple[int, int]] = []  # (start, end) of each pair, once read

    def mark(self) -> Any:
        event = self.cuda.Event()
        event.record()
        return event

    def begin(self) -> Any:
        """A mark before an operation."""
        return self.mark()

    def end(self, begun: Any, values: Sequence) -> int | None:
        """A mark after it: the number under which `spans` will have its times. None if none of its values is on the device."""
        if not any(isinstance(v, Tensor) and v.is_cuda for v in values):
            return None
        self.pairs.append((begun, self.mark()))
        return len(self.pairs) - 1

    def read(self) -> None:
        """Wait for the device, and turn the marks into times."""
        self.cuda.Device().synchronize()
        elapsed = self.cuda.get_elapsed_time
        for begun, ended in self.pairs[len(self.spans) :]:
            start = self.zero_ns + int(elapsed(self.zero, begun) * 1e6)
            self.spans.append((start, start + int(elapsed(begun, ended) * 1e6)))
