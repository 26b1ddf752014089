"""Schedules, files and plain words: what `profiler.profile` does with what was noted."""

from __future__ import annotations

import gzip
import json

import pytest

import flambeau
from flambeau import nn
from flambeau.profiler import ProfilerAction, profile, record_function, schedule, tensorboard_trace_handler

torch = pytest.importorskip("torch")


@pytest.mark.filterwarnings("ignore:Profiler won't be using warmup")
@pytest.mark.parametrize(
    "options",
    [
        {"wait": 1, "warmup": 1, "active": 2},
        {"wait": 0, "warmup": 0, "active": 1, "repeat": 2},
        {"wait": 2, "warmup": 1, "active": 3, "repeat": 2, "skip_first": 3},
        {"wait": 2, "warmup": 1, "active": 1, "skip_first": 2, "skip_first_wait": 1},
    ],
)
def test_schedules_are_pytorchs(options):
    """A schedule names PyTorch's action for every step."""
    ours, theirs = schedule(**options), torch.profiler.schedule(**options)
    assert [ours(i).name for i in range(25)] == [theirs(i).name for i in range(25)]


def test_activities_that_this_machine_lacks_are_named():
    """Without a GPU, asking for CUDA warns; asking for nothing else is an error, as in PyTorch."""
    if flambeau.cuda.is_available():
        pytest.skip("there is a GPU")
    for t in (flambeau, torch):
        kinds = t.profiler.ProfilerActivity
        with pytest.warns(UserWarning, match="CUDA is not available, disabling CUDA profiling"):
            prof = t.profiler.profile(activities=[kinds.CPU, kinds.CUDA])
            prof.start()
        t.ones(1) + 1
        prof.stop()
        assert len(prof.events()) > 0
        with pytest.warns(UserWarning, match="CUDA is not available"), pytest.raises(AssertionError):
            t.profiler.profile(activities=[kinds.CUDA]).start()


def rounds(**options) -> list:
    seen: list = []

    def note(prof):
        seen.append((prof.step_num, [e.trace_name for e in prof.events() if e.name == "ProfilerStep*"]))

    plan = schedule(wait=1, warmup=1, active=2, repeat=2)
    with profile(schedule=plan, on_trace_ready=note, **options) as prof:
        for _ in range(9):
            flambeau.ones(2).exp()
            prof.step()
    return [*seen, sum(e.count for e in prof.key_averages() if e.key == "aten::exp")]


def test_rounds_of_a_schedule():
    """on_trace_ready is called after the steps that PyTorch calls it after, with the same steps in the profile."""
    assert rounds() == [(4, ["ProfilerStep#2", "ProfilerStep#3"]), (8, ["ProfilerStep#6", "ProfilerStep#7"]), 2]
    assert rounds(acc_events=True)[-1] == 4


def test_incorrect_schedules_warn():
    """A schedule that stops noting without saving is a mistake, and said so."""
    actions = [ProfilerAction.RECORD, ProfilerAction.NONE]
    with pytest.warns(UserWarning, match="Incorrect schedule"), profile(schedule=lambda step: actions[step]) as prof:
        prof.step()


def test_by_hand():
    """start() and stop() do what the `with` does; asking before that is an error."""
    prof = profile()
    with pytest.raises(AssertionError, match="nothing has been recorded"):
        prof.key_averages()
    prof.start()
    flambeau.ones(2)
    prof.stop()
    assert len(prof.events()) == 1


@pytest.fixture(scope="module")
def trained():
    """A profile of three steps of training with all options."""
    flambeau.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))
    optimizer = flambeau.optim.SGD(model.parameters(), lr=0.1)
    data = flambeau.utils.data.TensorDataset(flambeau.randn(24, 64), flambeau.randint(0, 4, (24,)))
    loader = flambeau.utils.data.DataLoader(data, batch_size=8)
    with profile(record_shapes=True, profile_memory=True, with_stack=True) as prof:
        for x, y in loader:
            with record_function("step"):
                loss = nn.functional.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    return prof


def test_chrome_trace(trained, tmp_path):
    """The trace has what Perfetto needs: spans inside each other, arrows with both ends, counters, names; compressed if asked."""
    trained.add_metadata("purpose", "a test")
    trained.export_chrome_trace(str(tmp_path / "trace.json"))
    trained.export_chrome_trace(str(tmp_path / "trace.json.gz"))
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert trace["purpose"] == "a test"
    with gzip.open(tmp_path / "trace.json.gz", "rt") as file:
        assert len(json.load(file)["traceEvents"]) == len(trace["traceEvents"])
    by_phase: dict = {}
    for event in trace["traceEvents"]:
        by_phase.setdefault(event["ph"], []).append(event)
    spans = by_phase["X"]
    assert all({"name", "cat", "pid", "tid", "ts", "dur", "args"} <= span.keys() and span["dur"] >= 0 for span in spans)
    assert {"cpu_op", "user_annotation", "python_function"} <= {span["cat"] for span in spans}
    open_until: list[float] = []
    for span in sorted(spans, key=lambda s: (s["ts"], -s["dur"])):
        while open_until and open_until[-1] <= span["ts"]:
            open_until.pop()
        assert not open_until or span["ts"] + span["dur"] <= open_until[-1] + 1e-3, "spans that overlap in part: viewers drop them"
        open_until.append(span["ts"] + span["dur"])
    starts, ends = ({e["id"]: e for e in by_phase[phase]} for phase in "sf")
    assert starts.keys() == ends.keys() and len(starts) == 3 * 4  # two linear, tanh and the loss, in three steps
    at = {(span["ts"], span["name"]) for span in spans}
    for number, start in starts.items():
        assert any(ts == start["ts"] and name.startswith("aten::") for ts, name in at)
        assert any(ts == ends[number]["ts"] and "Backward0" in name for ts, name in at)
        assert ends[number]["ts"] > start["ts"]
    assert by_phase["C"] and by_phase["i"]
    line = next(span for span in spans if span["name"] == "aten::linear")["args"]["Line"]
    assert "test_profile.py:" in line


def test_trace_handler(trained, tmp_path):
    """Traces for TensorBoard go to the folder, under a name its plugin looks for."""
    tensorboard_trace_handler(str(tmp_path / "log"), worker_name="me", use_gzip=True)(trained)
    (file,) = (tmp_path / "log").iterdir()
    assert file.name.startswith("me.") and file.name.endswith(".pt.trace.json.gz")


def test_stacks(trained, tmp_path):
    """Each line is a stack from the outermost call on, an operation, and whole microseconds."""
    trained.export_stacks(str(tmp_path / "stacks.txt"), "self_cpu_time_total")
    lines = (tmp_path / "stacks.txt").read_text().splitlines()
    assert any("test_profile.py" in line and ";aten::addmm " in line for line in lines)
    assert all(line.rpartition(" ")[2].isdigit() for line in lines)
    with pytest.raises(ValueError, match="metric"):
        trained.export_stacks(str(tmp_path / "no.txt"), "weight")


def test_memory_timeline(trained, tmp_path):
    """Bytes over time as numbers and as a picture; without profile_memory there are none."""
    trained.export_memory_timeline(str(tmp_path / "memory.json"), device="cpu")
    times, sizes, kinds = json.loads((tmp_path / "memory.json").read_text())
    assert len(times) == len(sizes) and times == sorted(times) and len(sizes[0]) == len(kinds)
    assert max(size[kinds.index("gradients")] for size in sizes) >= 4 * 64 * 64
    trained.export_memory_timeline(str(tmp_path / "memory.html"), device="cpu")
    assert "<polygon" in (tmp_path / "memory.html").read_text()
    with profile() as prof:
        pass
    with pytest.raises(ValueError, match="profile_memory"):
        prof.export_memory_timeline(str(tmp_path / "x.json"))


def test_explanation(trained):
    """The parts of the time add up to the whole, and the slowest operation is named with its line."""
    found = trained.explain()
    assert sum(found.us.values()) == pytest.approx(found.total, rel=0.01)
    assert found.steps == 3 and all(found.us[part] > 0 for part in found.us)
    top = {hot.name: hot for hot in found.hot}
    assert top["aten::linear"].count == 6 and top["aten::linear"].backward_us > 0
    assert "model(x)" in top["aten::linear"].source
    text = str(found)
    assert "3 steps took" in text and "backward" in text and "test_profile.py:" in text and "To try" in text
    assert "<pre>" in found._repr_html_()


def test_explanation_sees_slow_data_and_loops():
    """A loader that sleeps, and a line that runs again and again, are what the advice is about."""
    import time

    class Slow(flambeau.utils.data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, i):
            time.sleep(0.002)
            return flambeau.ones(2)

    with profile() as prof:
        for batch in flambeau.utils.data.DataLoader(Slow(), batch_size=2):
            batch.sum()
    assert any("num_workers" in words for words in prof.explain().advice)
    x = flambeau.ones(200, 4)
    with profile() as prof:
        total = flambeau.zeros(4)
        for _ in range(400):
            total = x.exp()
    assert total.shape == x.shape
    assert any("times a step" in words for words in prof.explain().advice), str(prof.explain())


@pytest.mark.parametrize("t", [flambeau, torch], ids=["ours", "theirs"])
def test_activities_are_named_once_and_by_kinds_there_are(t):
    """An activity that is named twice, a kind that is none, a negative timeout."""
    CPU = t.profiler.ProfilerActivity.CPU
    with pytest.raises(ValueError, match="specified more than once"), t.profiler.profile(activities=[CPU, {CPU: ["CPU_OP"]}]):
        pass
    with pytest.raises(RuntimeError, match="Unknown or non-member activity type name"), t.profiler.profile(activities=[{CPU: ["NONE"]}]):
        pass
    with pytest.raises(ValueError, match="must be non-negative"), t.profiler.profile(post_processing_timeout_s=-1.0):
        pass


@pytest.mark.parametrize("t", [flambeau, torch], ids=["ours", "theirs"])
def test_lists_are_seen(t):
    """Arguments that are lists come as lists, tensors as None."""
    x = t.rand(2, 6)
    with t.profiler.profile(activities=[t.profiler.ProfilerActivity.CPU], record_shapes=True) as p:
        x.as_strided([4, 3], [1, 4])
    (event,) = [e for e in p.events() if e.name == "aten::as_strided"]
    assert event.concrete_inputs[:3] == [None, [4, 3], [1, 4]]
