"""The benchmark runner: turns, thread settings, ratios, table, JSON, and what happens when a framework breaks.

No test here asserts a time. Frameworks are doubles: lanes that read their numbers from a list, and two small modules
written to disk for the runs that go through real worker processes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:  # benchmarks/ is run from the repository, not installed
    sys.path.insert(0, str(ROOT))

from benchmarks import lane as lanes  # noqa: E402
from benchmarks import record, report, runner  # noqa: E402
from benchmarks.__main__ import main  # noqa: E402
from benchmarks.case import Case, case, declared, select  # noqa: E402
from benchmarks.frameworks import Framework, parse_frameworks  # noqa: E402
from benchmarks.lane import LaneFailure  # noqa: E402
from benchmarks.result import Reading, Result  # noqa: E402
from benchmarks.stopwatch import Stopwatch  # noqa: E402

A, B = Framework("a", "a", "a"), Framework("b", "b", "b")


def a_case(**columns) -> Case:
    return Case(**{"name": "file.op", "about": "", "body": len, "options": {}, "wanted": 0.7, **columns})


def result(a, b, statistic="median", **columns) -> Result:
    """`a` and `b` are lists of rounds, or the reason why there are none."""
    readings = [Reading({}, rounds) if isinstance(rounds, str) else Reading({None: rounds}) for rounds in (a, b)]
    return Result(a_case(**columns), dict(zip("ab", readings, strict=True)), statistic)


class ScriptedLane:
    """Gives the numbers it was made with, raises where a failure stands among them, and notes its turns in `log`."""

    def __init__(self, framework, threads, numbers, log):
        self.framework, self.threads, self.log = framework, threads, log
        self.numbers = iter(numbers)

    def prepare(self, case):
        self.log.append(f"prepare {self.framework.label}{self.threads}")

    def round(self):
        self.log.append(f"{self.framework.label}{self.threads}")
        number = next(self.numbers)
        if isinstance(number, Exception):
            raise number
        return number


class UnpreparedLane(ScriptedLane):
    def prepare(self, case):
        raise LaneFailure("ValueError: no such thing")


# Turns


def test_lanes_take_turns():
    """Rounds go A B A B, after everyone is prepared."""
    log: list[str] = []
    runner.interleave(a_case(), [ScriptedLane(A, 1, [1, 1], log), ScriptedLane(B, 2, [1, 1], log)], rounds=2)
    assert log == ["prepare a1", "prepare b2", "a1", "b2", "a1", "b2"]


def test_the_better_thread_setting_counts():
    """Of several thread settings the one with the lower median stands in the table, for each case anew."""
    slow, fast = ScriptedLane(A, 1, [5.0, 1.0, 6.0], []), ScriptedLane(A, 2, [4.0, 4.0, 3.0], [])
    reading = runner.interleave(a_case(), [slow, fast], rounds=3)["a"]
    assert reading.best("median") == (4.0, 2)
    assert reading.best("min") == (1.0, 1)


def test_a_lane_that_fails_leaves_the_others_running():
    """A lane that cannot prepare, or breaks in a round, drops out with its reason; the rest is measured in full."""
    c = Framework("c", "c", "c")
    broken = ScriptedLane(B, None, [1.0, LaneFailure("RuntimeError: broke")], [])
    racing = [ScriptedLane(A, None, [1.0, 2.0, 3.0], []), broken, UnpreparedLane(c, None, [], [])]
    readings = runner.interleave(a_case(), racing, rounds=3)
    assert readings["a"] == Reading({None: [1.0, 2.0, 3.0]})
    assert readings["b"] == Reading({}, "RuntimeError: broke")
    assert readings["c"] == Reading({}, "ValueError: no such thing")


def test_one_thread_setting_is_enough():
    """A framework whose other thread setting fails still has a value."""
    working = ScriptedLane(A, 2, [3.0], [])
    reading = runner.interleave(a_case(), [UnpreparedLane(A, 1, [], []), working], rounds=1)["a"]
    assert reading.best("median") == (3.0, 2)
    assert reading.error == "ValueError: no such thing"


# Ratio and verdict


def test_ratio_is_to_the_first_column():
    """Ratios divide by the baseline, the first column, with the statistic that was asked for."""
    rounds = [2.0, 4.0, 9.0], [1.0, 3.0, 3.0]
    assert result(*rounds).ratio("b") == 0.75
    assert result(*rounds, statistic="min").ratio("b") == 0.5
    assert result(*rounds).ratio("a") == 1.0


@pytest.mark.parametrize(
    ("ours", "columns", "kept"),
    [
        ([0.6], {}, True),
        ([0.704], {}, True),  # shown as 0.70, so it is 0.70
        ([0.71], {}, False),
        ([0.6], {"wanted": None}, None),
        ("failed", {}, None),
        ([0.6], {"limit": 0.5}, False),
        ([0.6], {"limit": 0.65}, True),
        ([0.8], {"limit": 0.9}, False),
        ([0.8], {"wanted": None, "limit": 0.9}, True),
    ],
)
def test_verdict(ours, columns, kept):
    """The mark is about the ratio as shown and about the limit, and is missing where neither can be told."""
    assert result([1.0], ours, **columns).kept is kept


def test_a_missing_baseline_leaves_no_ratio():
    """Without a baseline there is no ratio, but a limit can still be held or broken."""
    alone = result("failed", [2.0], limit=1.0)
    assert alone.ratio("b") is None
    assert alone.kept is False


def test_disagreeing_rounds_are_marked():
    """A ratio that rests on rounds far apart carries a ~, whichever of the two columns it comes from."""
    calm, wild = [1.0, 1.01, 1.02], [1.0, 1.6, 1.7]
    assert not result(calm, calm).is_noisy("b")
    assert result(calm, wild).is_noisy("b")
    assert result(wild, calm).is_noisy("b")
    assert report.cells(result(calm, wild))[2] == "1.58x~"


# Table, Markdown, JSON


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.5e-9, "s", "1.50 ns"),
        (1.234e-5, "s", "12.3 µs"),
        (9.996e-6, "s", "10.0 µs"),
        (9.997e-4, "s", "1.00 ms"),
        (0.25, "s", "250 ms"),
        (123.4, "s", "123 s"),
        (754e6, "B", "754 MB"),
        (2.5e9, "B", "2.50 GB"),
        (12, "B", "12 B"),
        (0, "B", "0 B"),
    ],
)
def test_amount(value, unit, text):
    """Numbers are shown with three digits in the unit that fits."""
    assert report.amount(value, unit) == text


def test_table_rows():
    """A row shows values, thread setting, ratio, wanted ratio and mark; a failed cell is a dash with its reason."""
    measured = Result(a_case(), {"a": Reading({1: [2e-6], 2: [1e-6]}), "b": Reading({None: [5e-7]})})
    failed = result([1e-3], "RuntimeError: cannot", name="file.other")
    table = report.Table(["a", "b"], [measured.case, failed.case])
    assert table.heading().split() == ["case", "a", "b", "ratio", "wanted"]
    assert table.row(measured).split() == ["file.op", "1.00", "µs", "2t", "500", "ns", "0.50x", "0.70", "✓"]
    assert table.row(failed).split(maxsplit=5) == ["file.other", "1.00", "ms", "-", "0.70", "b: RuntimeError: cannot"]


def test_an_absent_framework_is_explained_once():
    """The reason a framework could not be imported is not repeated in every row."""
    row = result([1.0], "ModuleNotFoundError: No module named 'b'")
    absent = {"b": "ModuleNotFoundError: No module named 'b'"}
    assert report.Table(["a", "b"], [row.case], absent).row(row).split() == ["file.op", "1.00", "s", "-", "0.70"]


def test_summary():
    """The last line gives the geometric mean of timed cases, the verdicts, and how many cells are empty."""
    rows = [
        result([1.0], [0.5]),
        result([1.0], [2.0]),
        result([1.0], "failed"),
        result([1.0], [0.1], probe=True),
    ]
    assert report.summary(rows, "b") == "b: geometric mean 1.00x over 2 timed cases, 2 of 3 as wanted, 1 not measured"
    assert report.summary([result([1.0], "failed")], "b") == "b: 1 not measured"


def a_head() -> dict:
    machine = {"processor": "P", "usable_cores": 2, "system": "S", "python": "3", "load_average": 0.1}
    options = {"device": "cpu", "rounds": 3, "statistic": "median", "frameworks": ["a", "b"], "cases": []}
    return record.begin(machine, options, {"a": {"version": "1", "device": "cpu"}, "b": {"error": "gone"}})


def test_markdown_table():
    """The Markdown file has the setting, a row per case with pipes escaped, and the reasons for empty cells."""
    rows = [result([1.0], [0.5], name="file.one|two"), result([1.0], "ValueError: no")]
    text = report.markdown(a_head(), rows, absent={})
    assert "- a 1\n- b: not measured, gone\n" in text
    assert "| `file.one\\|two` | 1.00 s | 500 ms | 0.50x | 0.70 ✓ |" in text
    assert "| `file.op` | 1.00 s | - |  | 0.70 |" in text
    assert "- `file.op`: b: ValueError: no" in text


def test_a_busy_machine_is_mentioned():
    """A load average of half the cores or more is said above the table."""
    head = a_head()
    assert "busy" not in " ".join(report.setting(head))
    head["machine"]["load_average"] = 1.5
    assert "busy: load average 1.5 on 2 cores" in " ".join(report.setting(head))


def test_json_holds_every_round():
    """The JSON text gives back rounds, statistics, ratio, verdict and errors, one case to a line."""
    rows = [result([1.0, 2.0, 4.0], [1.0, 1.0, 1.0]), result([1.0], "ValueError: no")]
    text = record.to_json(record.complete(a_head(), rows))
    first, second = json.loads(text)["results"]
    assert first["readings"]["a"]["settings"] == [{"threads": None, "median": 2.0, "min": 1.0, "rounds": [1.0, 2.0, 4.0]}]
    assert (first["ratios"], first["kept"]) == ({"b": 0.5}, True)
    assert second["readings"]["b"] == {"error": "ValueError: no", "settings": []}
    assert sum('"case": "file.op"' in line for line in text.splitlines()) == 2


# Cases and frameworks


def test_patterns_choose_cases():
    """A pattern is searched for in the name, with the shell's wildcards."""
    names = [found.name for found in select(["cumsum(dim=?)", "tiny*=True"])]
    assert names == ["small_ops.tiny_backward(accumulate=True)", "reductions.cumsum(dim=0)", "reductions.cumsum(dim=1)"]
    assert len(select([])) == len(declared())


def test_two_cases_cannot_share_a_name():
    """Declaring a second case of the same name is an error that says so."""

    def add(torch, device, grad):
        raise AssertionError("never run")

    add.__module__ = "benchmarks.cases.small_ops"
    with pytest.raises(ValueError, match=r"two cases are called small_ops.add\(grad=True\)"):
        case(wanted=1.0, grad=True)(add)


def test_columns():
    """Names become columns; a repeated one is numbered; torch alone is tuned, and only on the CPU; none is an error."""
    columns = parse_frameworks("torch, flambeau,torch")
    assert [column.label for column in columns] == ["torch", "flambeau", "torch#2"]
    assert columns[0].thread_settings("cpu")[0] == 1
    assert columns[0].thread_settings("cuda") == [None]
    assert columns[1].thread_settings("cpu") == [None]
    with pytest.raises(ValueError, match="no framework named"):
        parse_frameworks(",")


def test_the_parent_imports_no_framework():
    """Choosing and listing cases brings neither torch nor numpy nor flambeau into the process."""
    program = (
        "import sys; from benchmarks.__main__ import main; main(['--list'])\nassert not {'torch', 'numpy', 'flambeau'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True)


def test_every_case_runs_in_torch(monkeypatch):
    """Each declared case prepares and runs in PyTorch, which all of them are written for."""
    torch = pytest.importorskip("torch")
    declared()
    monkeypatch.setattr("benchmarks.cases.files.MEGABYTES", 5)
    monkeypatch.setattr("benchmarks.cases.training.SAMPLES", 640)
    monkeypatch.setattr("benchmarks.cases.data.ROWS", 640)
    for chosen in declared().values():
        if not chosen.probe:
            torch.manual_seed(0)
            chosen.body(torch, "cpu", **chosen.options)()


def test_the_clock_waits_for_the_device():
    """With a device that works on in the background, the clock is read after waiting for it, before and after."""
    log: list[str] = []
    stopwatch = Stopwatch(lambda: log.append("call"), lambda: log.append("wait"))
    stopwatch.count = 2
    log.clear()
    stopwatch.round()
    assert log == ["call", "wait", "call", "call", "wait"]


# Whole runs, with worker processes

DOUBLE = """
import os, signal, time

__version__ = "{version}"

class Matrix:
    def __add__(self, other):
        return Matrix()

    def __mul__(self, other):
        {mul}

    def __matmul__(self, other):
        {matmul}

def manual_seed(seed):
    print("chatter on stdout is nobody's business")

def randn(*shape, device, requires_grad=False):
    return Matrix()
"""


@pytest.fixture
def doubles(tmp_path, monkeypatch):
    """Two frameworks on the path: `good` can add and multiply; `bad` dies when it multiplies and hangs in matmul."""
    fine = "return Matrix()"
    crash, hang = "os.kill(os.getpid(), signal.SIGKILL)", "time.sleep(60)"
    (tmp_path / "good.py").write_text(DOUBLE.format(version="1.0", mul=fine, matmul=fine))
    (tmp_path / "bad.py").write_text(DOUBLE.format(version="0.1", mul=crash, matmul=hang))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def test_a_whole_run(doubles, capfd):
    """Crash, exception and a framework that is not there: each is named in its place, the rest is measured."""
    arguments = ["--frameworks", "good,bad,nowhere", "--rounds", "2"]
    for pattern in ("small_ops.add(grad=False)", "small_ops.mul(grad=False)", "small_ops.add(grad=True)", "exp(grad=F"):
        arguments += ["--case", pattern]
    page = doubles / "new" / "table.md"
    assert main([*arguments, "--json", str(doubles / "run.json"), "--markdown", str(page)]) == 0

    run = json.loads((doubles / "run.json").read_text())
    assert run["frameworks"]["good"] == {"version": "1.0", "device": "cpu"}
    assert run["frameworks"]["nowhere"] == {"error": "ModuleNotFoundError: No module named 'nowhere'"}
    assert run["options"]["rounds"] == 2
    assert run["machine"]["usable_cores"] >= 1
    rows = {row["case"]: row["readings"] for row in run["results"]}
    assert list(rows) == [f"small_ops.{name}" for name in ("add(grad=False)", "add(grad=True)", "mul(grad=False)")] + [
        "small_ops.exp(grad=False)"
    ]
    for name in ("good", "bad"):
        assert len(rows["small_ops.add(grad=False)"][name]["settings"][0]["rounds"]) == 2
    assert rows["small_ops.mul(grad=False)"]["bad"]["error"] == "the worker process ended by SIGKILL"
    assert rows["small_ops.mul(grad=False)"]["good"]["error"] is None
    # after the crash a new worker answers, so the reason is the case's own
    assert rows["small_ops.exp(grad=False)"]["bad"]["error"] == "AttributeError: module 'bad' has no attribute 'exp'"

    shown = capfd.readouterr().out
    assert "nowhere: not measured, ModuleNotFoundError: No module named 'nowhere'" in shown
    assert "bad: the worker process ended by SIGKILL" in shown
    assert "`small_ops.mul(grad=False)`: bad: the worker process ended by SIGKILL" in page.read_text()


def test_a_worker_that_hangs_is_given_up(doubles, monkeypatch):
    """A case that never returns costs its time limit and no more; the next one finds a fresh worker."""
    fine, hanging = select(["small_ops.add(grad=False)", "small_ops.matmul(grad=False)"])
    with runner.open_track(parse_frameworks("bad"), "cpu") as track:
        monkeypatch.setattr(lanes, "TIMEOUT_SECONDS", 0.3)
        assert track.run(hanging, rounds=1).readings["bad"].error == "no answer within 0.3 s"
        monkeypatch.setattr(lanes, "TIMEOUT_SECONDS", 60.0)
        assert track.run(fine, rounds=1).readings["bad"].error is None


def test_probes_read_packages_from_outside(doubles):
    """Import time comes from a fresh interpreter, size from the installed files; what is missing is named."""
    columns = parse_frameworks("good,nowhere,pytest")
    track = runner.Track(columns)
    import_time, size = select(["startup.import_time", "startup.installed_size"])
    imported = track.run(import_time, rounds=1).readings
    assert imported["good"].value("min") > 0
    assert "No module named 'nowhere'" in imported["nowhere"].error
    sizes = track.run(size, rounds=1).readings
    assert sizes["pytest"].value("min") > 100_000
    assert "nor the sources to build one from" in sizes["good"].error


def test_wrong_usage_is_explained(capsys):
    """A pattern without a case, no rounds and no frameworks end in a sentence, not a table."""
    for arguments, sentence in [
        (["--case", "sum", "--case", "nothing"], "no case matches nothing: --list shows them all"),
        (["--rounds", "0"], "expected at least 1, found 0"),
        (["--frameworks", ","], "no framework named in ','"),
    ]:
        with pytest.raises(SystemExit):
            main(arguments)
        assert sentence in capsys.readouterr().err
