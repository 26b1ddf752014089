"""The benchmarks of two ranks: every case runs, ranks that fail or die are named, and a world that was lost is started anew.

No test here asserts a time.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:  # benchmarks/ is run from the repository, not installed
    sys.path.insert(0, str(ROOT))

from benchmarks.case import Case  # noqa: E402
from benchmarks.distributed.__main__ import main  # noqa: E402
from benchmarks.distributed.cases import IN_RANKS, LAUNCHES, declared, select  # noqa: E402
from benchmarks.distributed.track import LONG, Track  # noqa: E402
from benchmarks.distributed.world import RANKS, WorldLane  # noqa: E402
from benchmarks.frameworks import Framework  # noqa: E402
from benchmarks.lane import LaneFailure  # noqa: E402

QUICK = ["4 B", "4 KB", "barrier", "mlp", "memory"]


@pytest.fixture
def world(monkeypatch):
    """One of Flambeau, which ends with the test."""
    declared()
    monkeypatch.setattr("benchmarks.distributed.world.ROUND_SECONDS", 0.002)
    lane = WorldLane(Framework("flambeau", "flambeau", "flambeau"), 1)
    lane.start()
    lane.introduction()
    yield lane
    lane.stop()


def test_cases_run(world):
    """Every quick case runs on two ranks; a time is a positive number, two ranks keep twice as much as one under fully_shard."""
    found = {}
    for case in IN_RANKS.values():
        if any(word in case.name for word in QUICK):
            world.prepare(case)
            found[case.name] = world.round()
    assert all(value > 0 and math.isfinite(value) for value in found.values()), found
    assert found["memory.fsdp"] == pytest.approx(found["memory.ddp"] / RANKS, rel=0.01)
    assert found["memory.share"] == pytest.approx(100 / RANKS, rel=0.01)


def test_a_rank_that_dies_is_named(world):
    """The case that killed it is lost, with the signal; the next one has a new world."""
    first = next(iter(IN_RANKS.values()))
    world.prepare(first)
    world._processes[1].kill()
    with pytest.raises(LaneFailure, match=r"rank 1 ended by SIGKILL|a rank is gone|rank 0: .*rank 1"):
        for _ in range(100):
            world.round()
    world.prepare(first)
    assert world.round() > 0


def test_what_a_case_raises_is_the_reason(world):
    """A body that fails in the ranks gives the lane's reason, and no hanging."""
    wrong = Case(name="nowhere", about="", body=len, options={}, wanted=None)
    with pytest.raises(LaneFailure, match=r"rank \d: KeyError"):
        world.prepare(wrong)


def test_differences_are_medians(monkeypatch):
    """What is in percent is given as the median of a few readings even where the rest is the minimum."""
    asked = []
    monkeypatch.setattr("benchmarks.runner.Track.run", lambda self, case, rounds, statistic: asked.append((case.name, rounds, statistic)))
    track = Track([])
    for name in ("steps.exposed", "steps.ddp(model=mlp)", "startup.by_hand"):
        track.run(declared()[name], 100, "min")
    assert asked == [("steps.exposed", LONG, "median"), ("steps.ddp(model=mlp)", 100, "min"), ("startup.by_hand", LONG, "min")]


def test_select_and_list(capsys):
    """Patterns choose by any part of the name; what starts processes of its own is no case for a standing world."""
    assert [case.name for case in select(["all_reduce(size=4 ?B"])] == [
        "collectives.all_reduce(size=4 KB)",
        "collectives.all_reduce(size=4 MB)",
    ]
    assert not LAUNCHES.keys() & IN_RANKS.keys()
    assert main(["--list", "startup"]) == 0
    assert capsys.readouterr().out.count("\n") == 3
    with pytest.raises(SystemExit):
        main(["nonsense"])
    assert "no case matches nonsense" in capsys.readouterr().err
