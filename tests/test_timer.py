"""torch.utils.benchmark: what a timer measures, and the texts and tables PyTorch would write about it."""

from __future__ import annotations

import re

import pytest

import flambeau
import flambeau.utils.benchmark as ours

theirs = pytest.importorskip("torch.utils.benchmark")

TIMES = {
    "one": ([1e-5], {}),
    "two, far apart": ([0.5, 1.5], {"label": "L"}),
    "three": ([1e-5] * 3, {"setup": "import a", "description": "d", "label": "l"}),
    "many": ([1e-5, 1.1e-5, 3e-5] * 4, {"label": "dot", "sub_label": "[4]", "description": "mul"}),
    "a little noisy": ([1e-5, 1.15e-5, 1e-5, 1.2e-5, 1e-5], {"setup": "a\nb", "stmt": "a\nb", "num_threads": 4}),
    "steady": ([2e-3] * 20, {"stmt": "x\n  y", "setup": "import a", "env": "e"}),
}


def measured(room, times, stmt="f(x)", setup="pass", **names):
    return room.Measurement(10, times, room.TaskSpec(stmt=stmt, setup=setup, **names))


@pytest.mark.parametrize("case", TIMES)
def test_a_measurement_reads_as_pytorchs(case):
    """The text of a measurement, or a number in it, is not PyTorch's."""
    times, names = TIMES[case]
    found = []
    for room in (ours, theirs):
        m = measured(room, times, **names)
        text = re.sub("WARNING: .*", "WARNING", repr(m).split("\n", 1)[1])  # without the address, and without what is said in our own words
        found.append((text, m.median, m.significant_figures, m.has_warnings, m.title, m.as_row_name, m.env, len(m.times)))
    assert found[0] == found[1]


def results(room):
    rows = [("a", "mul", 1, 1.0), ("a", "bmm", 1, 2.345), ("bb", "mul", 1, 3.0), ("bb", "bmm", 4, 24.0), ("a", "mul", 4, 12.0)]
    found = [measured(room, [t * 1e-5] * 3, label="dot", sub_label=s, description=d, num_threads=n) for s, d, n, t in rows]
    found.append(measured(room, [1e-5, 1.5e-5, 3e-5, 2e-5], label="noisy", description="x", env="here"))
    return [*found, measured(room, [2e-3] * 3, label="noisy", description="x", env="there")]


@pytest.mark.parametrize("options", [(), ("trim_significant_figures",), ("highlight_warnings",), ("trim_significant_figures", "colorize")])
def test_a_comparison_is_pytorchs_table(options):
    """A table of measurements is laid out otherwise than PyTorch's."""
    found = []
    for room in (ours, theirs):
        table = room.Compare(results(room))
        for option in options:
            getattr(table, option)()
        found.append(re.sub("\\(! XX%\\) .*", "", str(table)))
    assert found[0] == found[1]


def test_a_timer_runs_the_statement():
    """A statement does not see its globals, torch or its setup, runs on other threads than asked for, or is not run as often as it says."""
    runs, before = [], flambeau.get_num_threads()
    names = {"note": lambda *a: runs.append(a)}
    timer = ours.Timer("note(torch.get_num_threads(), y)", setup="y = 5", globals=names, num_threads=1)
    m = timer.timeit(7)
    assert len(runs) == 2 + 7 and set(runs) == {(1, 5)} and m.number_per_run == 7 and flambeau.get_num_threads() == before
    for m in (timer.blocked_autorange(min_run_time=0.002), timer.adaptive_autorange(threshold=10, min_run_time=0.001)):
        assert m.median > 0 and sum(m.raw_times) >= 0.001
    for wrong in (lambda room: room.Timer(lambda: 1), lambda room: room.Timer("x", global_setup="#include <math.h>")):
        for room in (ours, theirs):
            with pytest.raises(ValueError):
                wrong(room)
