"""The lanes of a run: for every framework a world of ranks that stays, or, for cases about starting one, none."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from benchmarks import runner
from benchmarks.case import Case
from benchmarks.distributed.cases import LAUNCHES
from benchmarks.distributed.world import WorldLane
from benchmarks.frameworks import Framework
from benchmarks.lane import Lane
from benchmarks.result import Result

LONG = 5  # rounds at most of what takes seconds for one: starts of processes, differences that are turns enough in themselves


class Track(runner.Track):
    """The worlds that stand, and why a framework is not here."""

    def run(self, case: Case, rounds: int, statistic: str = "median") -> Result:
        """Measure one case. The least of several differences would be the luckiest one, so of these it is always the median."""
        difference = case.unit == "%"
        rounds = min(rounds, LONG) if difference or case.name in LAUNCHES else rounds
        return super().run(case, rounds, "median" if difference else statistic)

    def lanes(self, case: Case) -> list[Lane]:
        return self.probes() if case.name in LAUNCHES else [*self.workers]


def open_track(frameworks: Sequence[Framework], threads: int) -> AbstractContextManager[runner.Track]:
    """Start every framework's world, and end them when the block is left."""
    return runner.standing(Track(frameworks), [WorldLane(framework, threads) for framework in frameworks])
