"""Time a callable: how many calls fill a round, and what one call in a round costs."""

from __future__ import annotations

import timeit
from collections.abc import Callable
from time import perf_counter
from typing import Any

# Long enough to hide the clock's resolution, short enough that a disturbance of the machine, which lasts
# longer, falls on both frameworks.
ROUND_SECONDS = 0.020


class Stopwatch:
    """Calls of `call`, as many as take about ROUND_SECONDS, timed together with the garbage collector off.

    What `call` returns is dropped at once, so that every call pays for its own result's memory. `synchronize` waits for
    a device that works on after the call has returned.
    """

    def __init__(self, call: Callable[[], Any], synchronize: Callable[[], None] | None = None) -> None:
        self.call = call
        self._timer = timeit.Timer(call, timer=_clock(synchronize))
        call()  # kernels are compiled, pools grow and lazy imports happen in the first call
        self.count = self._calibrate()

    def round(self) -> float:
        """Seconds for one call, averaged over a round."""
        if self.count > 1:
            self.call()  # the other framework had the caches and the cores just now
        return self._timer.timeit(self.count) / self.count

    def _calibrate(self) -> int:
        count = 1
        while (seconds := self._timer.timeit(count)) < ROUND_SECONDS / 4:
            count *= 4
        return max(1, round(count * ROUND_SECONDS / seconds))


def _clock(synchronize: Callable[[], None] | None) -> Callable[[], float]:
    if synchronize is None:
        return perf_counter

    def after_the_device() -> float:
        synchronize()
        return perf_counter()

    return after_the_device
