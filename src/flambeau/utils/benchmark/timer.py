"""Timer: runs a statement as often as it takes to say how long it takes."""

from __future__ import annotations

import sys
import textwrap
import time
import timeit
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from flambeau import cuda, settings
from flambeau.utils.benchmark.measurement import Measurement, TaskSpec


def timer() -> float:
    """Seconds on the clock, once the GPU has done what it was given."""
    if cuda.is_available():
        cuda.synchronize()
    return time.perf_counter()


class Timer:
    """A statement, to be timed on `num_threads` threads. `setup` runs before, and `globals` are the names both know; torch is one of them.

    timeit               a number of runs, one time
    blocked_autorange    blocks of runs for at least a while, a time each
    adaptive_autorange   blocks of runs until the times agree
    """

    def __init__(
        self, stmt: str = "pass", setup: str = "pass", global_setup: str = "", timer: Callable[[], float] = timer,
        globals: dict[str, Any] | None = None, label: str | None = None, sub_label: str | None = None, description: str | None = None,
        env: str | None = None, num_threads: int = 1, language: Any = "python",
    ) -> None:  # fmt: skip
        if not isinstance(stmt, str):
            raise ValueError(f"Timer: stmt is the text of a statement, found a {type(stmt).__name__}")
        if str(getattr(language, "name", language)).lower() not in ("python", "py"):
            raise NotImplementedError(f"Timer: only Python statements can be timed, not language={language!r}")
        if global_setup:
            raise ValueError("Timer: global_setup is for C++ only. For Python there is setup=")
        stmt, setup = textwrap.dedent(stmt).strip(), textwrap.dedent(setup).strip()
        known = {**(globals or {})}
        known.setdefault("torch", sys.modules["flambeau"])
        self._timer = timeit.Timer(stmt, setup, timer, known)
        self._task_spec = TaskSpec(stmt, setup, "", label, sub_label, description, env, num_threads)

    def timeit(self, number: int = 1000000) -> Measurement:
        """The time of so many runs, after a warm-up of a hundredth of them."""
        with _threads(self._task_spec.num_threads):
            self._timer.timeit(max(number // 100, 2))
            return Measurement(number, [self._timer.timeit(number)], self._task_spec)

    def autorange(self, callback: Callable[[int, float], Any] | None = None) -> Any:
        """Not for use here either: a single time without a warm-up says little."""
        raise NotImplementedError("See `Timer.blocked_autorange`.")

    def repeat(self, repeat: int = -1, number: int = -1) -> Any:
        """Not for use here either, for the same reason."""
        raise NotImplementedError("See `Timer.blocked_autorange`.")

    def blocked_autorange(self, callback: Callable[[int, float], Any] | None = None, min_run_time: float = 0.2) -> Measurement:
        """Times of blocks that are long enough for the clock, until `min_run_time` seconds were measured."""
        return self._blocks(min_run_time, min_run_time, callback, lambda measured: False)

    def adaptive_autorange(
        self, threshold: float = 0.1, *, min_run_time: float = 0.01, max_run_time: float = 10.0, callback: Callable[[int, float], Any] | None = None
    ) -> Measurement:  # fmt: skip
        """Times of blocks until the middle half of them differs by less than `threshold` of the median, or the time is up."""

        def agree(measured: Measurement) -> bool:
            times = measured.raw_times
            return len(times) >= 4 and sum(times) >= min_run_time and measured.meets_confidence(threshold)

        return self._blocks(min_run_time, max_run_time, callback, agree)

    def collect_callgrind(self, *args: Any, **kwargs: Any) -> Any:
        """NotImplementedError: instructions are not counted here."""
        raise NotImplementedError("Timer.collect_callgrind: Flambeau does not run Valgrind. Try blocked_autorange, or torch.profiler")

    def _blocks(
        self, min_run_time: float, max_run_time: float, callback: Callable[[int, float], Any] | None, enough: Callable[[Measurement], bool]
    ) -> Measurement:
        """Times of blocks until the time is up, or they are enough."""
        with _threads(self._task_spec.num_threads):
            number = self._block(min_run_time)
            times: list[float] = []
            while sum(times) < max_run_time:
                times.append(self._timer.timeit(number))
                if callback is not None:
                    callback(number, times[-1])
                if enough(Measurement(number, times, self._task_spec)):
                    break
        return Measurement(number, times, self._task_spec)

    def _block(self, min_run_time: float) -> int:
        """How many runs take at least a thousandth of the time there is, so that the clock's own cost disappears."""
        self._timer.timeit(2)
        number = 1
        while self._timer.timeit(number) < min_run_time / 1000:
            number *= 10
        return number


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = settings.get_num_threads()
    settings.set_num_threads(count)
    try:
        yield
    finally:
        settings.set_num_threads(before)
