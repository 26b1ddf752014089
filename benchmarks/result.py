"""What a case gave: the rounds of every framework, the ratio between them, and whether that is what was wanted."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.case import Case

STATISTICS: dict[str, Callable[[Sequence[float]], float]] = {"median": statistics.median, "min": min}

# Half of the rounds this much slower than the quickest one: something else was running.
NOISY = 1.25


@dataclass(frozen=True)
class Reading:
    """One framework on one case: the rounds under each thread setting, or the reason why there are none."""

    rounds: Mapping[int | None, Sequence[float]]
    error: str | None = None

    def best(self, statistic: str) -> tuple[float, int | None] | None:
        """The value under the better thread setting, and that setting; None where nothing was measured."""
        values = [(STATISTICS[statistic](rounds), threads) for threads, rounds in self.rounds.items()]
        return min(values, key=lambda pair: pair[0], default=None)

    def value(self, statistic: str) -> float | None:
        """The number that stands in the table."""
        best = self.best(statistic)
        return best[0] if best else None

    def is_noisy(self, statistic: str) -> bool:
        """Whether the rounds disagree so much that the number should not be leaned on."""
        best = self.best(statistic)
        if best is None:
            return False
        rounds = self.rounds[best[1]]
        return statistics.median(rounds) > NOISY * min(rounds)


@dataclass(frozen=True)
class Result:
    """One row: `readings` by column label. The first column is the baseline, the second is the one being judged."""

    case: Case
    readings: Mapping[str, Reading]
    statistic: str = "median"

    def value(self, label: str) -> float | None:
        """The number of one column."""
        return self.readings[label].value(self.statistic)

    def ratio(self, label: str) -> float | None:
        """This column over the baseline, to two decimals: below 1 is faster, or smaller, than the baseline."""
        ours, theirs = self.value(label), self.value(next(iter(self.readings)))
        if ours is None or not theirs:
            return None
        return round(ours / theirs, 2)

    def is_noisy(self, label: str) -> bool:
        """Whether the ratio of this column rests on rounds that disagree."""
        pair = self.readings[next(iter(self.readings))], self.readings[label]
        return any(reading.is_noisy(self.statistic) for reading in pair)

    @property
    def judged(self) -> str | None:
        """The label of the column that the wanted ratio is about."""
        return next(iter(list(self.readings)[1:]), None)

    @property
    def kept(self) -> bool | None:
        """Whether the judged column keeps the wanted ratio and the limit; None where neither can be told.

        The rounded ratio is what is compared, so that a table never says 0.70 is more than 0.70.
        """
        if self.judged is None:
            return None
        checks = []
        ratio, value = self.ratio(self.judged), self.value(self.judged)
        if self.case.wanted is not None and ratio is not None:
            checks.append(ratio <= self.case.wanted)
        if self.case.limit is not None and value is not None:
            checks.append(value <= self.case.limit)
        return all(checks) if checks else None
