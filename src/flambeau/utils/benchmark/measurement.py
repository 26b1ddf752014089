"""What a timer found: the times, what is usual among them, and how far they can be trusted."""

from __future__ import annotations

import math
import statistics
import textwrap
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

FEW = 4  # measurements below which quartiles mean nothing
NOISY, VERY_NOISY = 0.1, 0.25  # interquartile range / median
SHORTEST = 25e-9  # seconds that no clock tells apart
MOST_DIGITS = 4


@dataclass(init=True, repr=False, eq=True, frozen=True)
class TaskSpec:
    """What was measured, and under which names it is shown."""

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The label, or the statement."""
        if self.label is not None:
            return self.label + (f": {self.sub_label}" if self.sub_label else "")
        if "\n" in self.stmt:
            return "stmt:\n" + textwrap.indent(self.stmt, "  ")
        return self.stmt + (f": {self.sub_label}" if self.sub_label else "")

    def setup_str(self) -> str:
        """The preparation, if there is any."""
        if self.setup in ("", "pass"):
            return ""
        return "setup:\n" + textwrap.indent(self.setup, "  ") + "\n" if "\n" in self.setup else f"setup: {self.setup}"

    def summarize(self) -> str:
        """All of it, as it stands above a measurement."""
        title = self.title + ("\n" if self.title.startswith("stmt:\n") else "")
        return "\n".join(part for part in (title, self.description or "", self.setup_str()) if part)


class Measurement:
    """Times of a task: `raw_times` seconds for `number_per_run` runs each."""

    def __init__(self, number_per_run: int, raw_times: list[float], task_spec: TaskSpec, metadata: dict | None = None) -> None:
        self.number_per_run, self.raw_times, self.task_spec, self.metadata = number_per_run, raw_times, task_spec, metadata

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "task_spec" not in self.__dict__ or not hasattr(self.task_spec, name):
            raise AttributeError(f"'Measurement' object has no attribute {name!r}")
        return getattr(self.task_spec, name)

    @property
    def times(self) -> list[float]:
        """Seconds of one run, from each measurement."""
        return [t / self.number_per_run for t in self.raw_times]

    @property
    def median(self) -> float:
        """The time in the middle."""
        return statistics.median(self._some_times())

    @property
    def mean(self) -> float:
        """The average time."""
        return float(np.mean(self._some_times()))

    @property
    def iqr(self) -> float:
        """How far the middle half of the times is spread."""
        low, high = np.quantile(self._some_times(), [0.25, 0.75])
        return float(high - low)

    @property
    def significant_figures(self) -> int:
        """How many digits of the median mean something, judged by the spread of the middle half."""
        times = sorted(self._some_times())
        middle = times[len(times) // 4 : math.ceil(3 * len(times) / 4)]
        uncertain = max(1.645 * float(np.std(middle)) / math.sqrt(len(middle)), SHORTEST)
        return min(max(math.floor(math.log10(self.median / uncertain)), 1), MOST_DIGITS)

    @property
    def has_warnings(self) -> bool:
        """Whether the times are so far apart that something else must have been going on."""
        return not self.meets_confidence()

    @property
    def title(self) -> str:
        """The label, or the statement."""
        return self.task_spec.title

    @property
    def env(self) -> str | None:
        """Where it was measured, for comparisons."""
        return self.task_spec.env

    @property
    def as_row_name(self) -> str:
        """The name of its row in a comparison."""
        return self.task_spec.sub_label or self.task_spec.stmt or "[Unknown]"

    def meets_confidence(self, threshold: float = NOISY) -> bool:
        """Whether the spread is at most so large a share of the median."""
        return self.iqr / self.median < threshold

    def _some_times(self) -> list[float]:
        if not self.raw_times:
            raise AssertionError("a Measurement without times has no median")
        return self.times

    def __repr__(self) -> str:
        unit, scale = select_unit(self.median)
        count, threads = len(self.raw_times), self.task_spec.num_threads
        lines = [f"<torch.utils.benchmark.utils.common.Measurement object at {hex(id(self))}>", self.task_spec.summarize()]
        lines.append(f"  {'Median: ' if count > 1 else ''}{self.median / scale:.2f} {unit}")
        if count >= FEW:
            low, high = np.quantile(self.times, [0.25, 0.75]) / scale
            lines.append(f"  IQR:    {self.iqr / scale:.2f} {unit} ({low:.2f} to {high:.2f})")
        each = "per measurement" if count > 1 else ""
        lines.append(f"  {count} measurement{'s' * (count > 1)}, {self.number_per_run} runs {each}, {threads} thread{'s' * (threads > 1)}")
        if self.has_warnings:
            grave = self.iqr / self.median > VERY_NOISY
            lines.append(f"  WARNING: times differ much: half of them lie within {self.iqr / self.median * 100:.1f}% of the median.")
            lines.append(
                f"           This {'suggests significant environmental influence' if grave else 'could indicate system fluctuation'}."
            )
        return "\n".join(lines)

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """One measurement for each task, with the times of all of that task, each counting one run."""
        tasks: dict[TaskSpec, list[float]] = defaultdict(list)
        for m in measurements:
            tasks[m.task_spec].extend(m.times)
        return [Measurement(1, times, task) for task, times in tasks.items()]


def select_unit(t: float) -> tuple[str, float]:
    """(unit, its length in seconds) in which a time is written."""
    unit = {-3: "ns", -2: "us", -1: "ms"}.get(math.floor(math.log10(t) // 3) if t else 0, "s")
    return unit, {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}[unit]
