"""torch.utils.benchmark: how long statements take, measured with warm-up, on a known number of threads.

>>> Timer("x + 1", globals={"x": torch.ones(3)}).timeit(100).number_per_run
100
"""

from __future__ import annotations

from flambeau.utils.benchmark.compare import Compare
from flambeau.utils.benchmark.measurement import Measurement, TaskSpec, select_unit
from flambeau.utils.benchmark.timer import Timer, timer

__all__ = ["Compare", "Measurement", "TaskSpec", "Timer", "select_unit", "timer"]
