"""The run itself: short rounds in every lane in turn, A B A B ..., so that noise falls on all of them alike."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks.case import Case
from benchmarks.frameworks import Framework
from benchmarks.lane import Lane, LaneFailure, ProbeLane, StandingLane, WorkerLane
from benchmarks.result import Reading, Result

# Thread pools spin for a moment after their work is done, PyTorch's for 9 ms; the next framework should not share its cores with that.
SETTLE_SECONDS = 0.020


@dataclass
class Track:
    """The lanes that are ready to run, what each framework said of itself, and why a framework is not here."""

    frameworks: Sequence[Framework]
    workers: list[StandingLane] = field(default_factory=list)
    introductions: dict[str, dict[str, Any]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)

    def run(self, case: Case, rounds: int, statistic: str = "median") -> Result:
        """Measure one case in every framework that is here."""
        readings = interleave(case, self.lanes(case), rounds)
        for label, reason in self.absent.items():
            readings.setdefault(label, Reading({}, reason))
        return Result(case, {framework.label: readings[framework.label] for framework in self.frameworks}, statistic)

    def roll_call(self) -> dict[str, dict[str, Any]]:
        """What each framework said of itself, or the reason it is not here, in the order of the columns."""
        labels = [framework.label for framework in self.frameworks]
        return {label: self.introductions.get(label) or {"error": self.absent[label]} for label in labels}

    def lanes(self, case: Case) -> list[Lane]:
        """Where `case` is measured."""
        return self.probes() if case.probe else [*self.workers]

    def probes(self) -> list[Lane]:
        """A framework that could not be imported can still be weighed if it is installed, and says so if it is not."""
        return [ProbeLane(framework) for framework in self.frameworks]


@contextmanager
def open_track(frameworks: Sequence[Framework], device: str) -> Iterator[Track]:
    """Start every framework's workers, and end them when the block is left."""
    lanes = [WorkerLane(framework, device, threads) for framework in frameworks for threads in framework.thread_settings(device)]
    with standing(Track(frameworks), lanes) as track:
        yield track


@contextmanager
def standing(track: Track, lanes: Sequence[StandingLane]) -> Iterator[Track]:
    """Start the lanes, give those that come up to the track, and end them when the block is left."""
    with ExitStack() as running:
        for lane in lanes:
            running.callback(lane.stop)
            lane.start()
        for lane in lanes:
            try:
                track.introductions[lane.framework.label] = lane.introduction()
                track.workers.append(lane)
            except LaneFailure as failure:
                track.absent[lane.framework.label] = str(failure)
        for label in track.introductions:  # one thread setting that works is enough to be here
            track.absent.pop(label, None)
        yield track


def interleave(case: Case, lanes: Iterable[Lane], rounds: int) -> dict[str, Reading]:
    """Prepare `case` in every lane, then take `rounds` rounds in each by turns. One reading per framework label.

    A lane that fails drops out and the others go on; its framework has a reading all the same if another thread setting
    of it went through.
    """
    errors: dict[str, str] = {}
    measured: dict[str, dict[int | None, list[float]]] = {}
    racing: list[Lane] = []
    for lane in lanes:
        measured.setdefault(lane.framework.label, {})
        try:
            lane.prepare(case)
            racing.append(lane)
        except LaneFailure as failure:
            errors[lane.framework.label] = str(failure)
    for _ in range(rounds):
        for lane in list(racing):
            time.sleep(SETTLE_SECONDS)
            label = lane.framework.label
            try:
                measured[label].setdefault(lane.threads, []).append(lane.round())
            except LaneFailure as failure:
                racing.remove(lane)
                measured[label].pop(lane.threads, None)  # half a lane's rounds saw half of the noise
                errors[label] = str(failure)
    return {label: Reading(settings, errors.get(label)) for label, settings in measured.items()}
