"""What a profile notes: operations under PyTorch's names, their parts, backward, ranges, memory; and that it leaves nothing behind."""

from __future__ import annotations

import gc
import sys
import threading

import numpy as np
import pytest

import flambeau
from flambeau import modes, nn
from flambeau.autograd import profiler as plain
from flambeau.profiler import ProfilerActivity, profile, record_function, supported_activities

torch = pytest.importorskip("torch")
F = flambeau.nn.functional


def counts(prof) -> dict[str, int]:
    return {average.key: average.count for average in prof.key_averages()}


def event(prof, name: str):
    return next(e for e in prof.events() if e.name == name)


PROGRAMS = [
    ("aten::linear", lambda t: t.nn.functional.linear(t.ones(2, 3), t.ones(4, 3), t.ones(4))),
    ("aten::addmm", lambda t: t.nn.functional.linear(t.ones(2, 3), t.ones(4, 3), t.ones(4))),
    ("aten::mm", lambda t: t.ones(2, 3) @ t.ones(3, 2)),
    ("aten::bmm", lambda t: t.ones(5, 2, 3) @ t.ones(5, 3, 2)),
    ("aten::add", lambda t: t.ones(2) + 1),
    ("aten::add_", lambda t: t.ones(2).add_(1)),
    ("aten::mul", lambda t: t.ones(2) * t.ones(2)),
    ("aten::relu", lambda t: t.nn.functional.relu(t.ones(2))),
    ("aten::sum", lambda t: t.ones(2, 2).sum(0)),
    ("aten::softmax", lambda t: t.ones(2, 2).softmax(0)),
    ("aten::conv2d", lambda t: t.nn.functional.conv2d(t.ones(1, 1, 5, 5), t.ones(1, 1, 3, 3))),
    ("aten::cross_entropy_loss", lambda t: t.nn.functional.cross_entropy(t.ones(2, 2), t.zeros(2, dtype=t.int64))),
    ("aten::select", lambda t: t.ones(2, 2)[0]),
    ("aten::slice", lambda t: t.ones(3)[1:]),
    ("aten::index", lambda t: t.ones(3)[t.tensor([0, 1])]),
    ("aten::ones", lambda t: t.ones(3)),
    ("aten::randn", lambda t: t.randn(3)),
    ("aten::view", lambda t: t.ones(4).view(2, 2)),
    ("aten::linalg_inv", lambda t: t.linalg.inv(t.eye(2))),
    ("aten::item", lambda t: t.ones(1).item()),
    ("aten::stack", lambda t: t.stack([t.ones(2), t.ones(2)])),
    ("aten::embedding", lambda t: t.nn.functional.embedding(t.tensor([0]), t.ones(2, 2))),
    ("aten::layer_norm", lambda t: t.nn.functional.layer_norm(t.ones(2, 4), (4,))),
    ("aten::native_layer_norm", lambda t: t.nn.functional.layer_norm(t.ones(2, 4), (4,))),
]


def names_in(framework, programs) -> set[str]:
    with framework.profiler.profile(activities=[framework.profiler.ProfilerActivity.CPU]) as prof:
        for program in programs:
            program(framework)
    return {e.key for e in prof.key_averages()}


@pytest.fixture(scope="module")
def known() -> set[str]:
    """The names that PyTorch's profiler shows: it runs only once, since many profiles in one process have been seen to crash it."""
    return names_in(torch, [program for _, program in PROGRAMS])


@pytest.mark.parametrize(("name", "program"), PROGRAMS, ids=[name for name, _ in PROGRAMS])
def test_names_are_pytorchs(known, name, program):
    """A program that looks for an operation by PyTorch's name finds it."""
    assert name in known
    assert name in names_in(flambeau, [program])


def test_backward_and_optimizer():
    """Nodes of backward, accumulated gradients and the optimizer have PyTorch's names and counts."""
    model = nn.Linear(3, 2)
    optimizer = flambeau.optim.Adam(model.parameters())
    with profile() as prof:
        model(flambeau.ones(4, 3)).relu().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    found = counts(prof)
    for name in ("AddmmBackward0", "ReluBackward0", "SumBackward0"):
        assert found[name] == found[f"autograd::engine::evaluate_function: {name}"] == 1
    assert found["torch::autograd::AccumulateGrad"] == 2
    assert found["Optimizer.step#Adam.step"] == found["Optimizer.zero_grad#Adam.zero_grad"] == 1
    inner = event(prof, "AddmmBackward0")
    assert inner.cpu_parent.name == "autograd::engine::evaluate_function: AddmmBackward0"


def test_derivatives_run_by_their_plans():
    """Looking at times alone takes declared derivatives apart, which makes a profiled backward slow; or looking at shapes does not."""
    model = nn.Linear(3, 2)
    for options, whole in (({}, True), ({"record_shapes": True}, False)):
        with profile(**options) as prof:
            model(flambeau.ones(4, 3)).sum().backward()
        assert (not event(prof, "AddmmBackward0").cpu_children) is whole


def test_custom_functions():
    """A custom Function is an event under its own name, with its operations inside; so is its backward."""

    class Double(flambeau.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    x = flambeau.ones(2, requires_grad=True)
    with profile() as prof:
        Double.apply(x).sum().backward()
    assert [child.name for child in event(prof, "Double").cpu_children] == ["aten::mul"]
    assert [child.name for child in event(prof, "DoubleBackward").cpu_children] == ["aten::mul"]


def test_gradients_are_stolen_all_the_same():
    """Being profiled must not make backward copy the gradients it otherwise hands over."""
    weight = flambeau.ones(64, 64, requires_grad=True)
    with profile(profile_memory=True) as prof:
        (flambeau.ones(2, 64) @ weight).sum().backward()
    made = sum(size for _, _, size, _ in prof.profiler.recorder.ledger.changes if size == weight.nbytes)
    assert made == weight.nbytes


def test_data_loading():
    """Each batch asked of a loader is a range with PyTorch's name; the last, which finds none, too."""
    loader = flambeau.utils.data.DataLoader(flambeau.utils.data.TensorDataset(flambeau.ones(6, 2)), batch_size=2)
    with profile() as prof:
        list(loader)
    assert counts(prof)["enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"] == 4


def test_ranges_are_parents():
    """What runs inside a range is its child, and the parts of a composite are its children."""
    x = flambeau.ones(2, 3)
    with profile() as prof:
        with record_function("outer"), record_function("inner"):
            F.layer_norm(x, (3,))
        x + 1
    assert event(prof, "inner").cpu_parent.name == "outer"
    assert event(prof, "aten::layer_norm").cpu_parent.name == "inner"
    assert event(prof, "aten::add").cpu_parent is None
    outer = event(prof, "outer")
    assert outer.self_cpu_time_total == pytest.approx(outer.cpu_time_total - event(prof, "inner").cpu_time_total)


def test_range_knows_the_line_that_opened_it():
    """A range's line is the one with record_function, not that of whoever called the function it is in: a program's top has no caller."""
    with profile() as prof, record_function("here"):
        pass
    code, _ = event(prof, "here").line
    assert code.co_name == "test_range_knows_the_line_that_opened_it"


def test_record_function_decorates():
    """As a decorator, each call is a range of its own."""

    @record_function("work")
    def work(n):
        return n + 1

    with profile() as prof:
        assert work(work(1)) == 3
    assert counts(prof) == {"work": 2}


def test_shapes_and_flops():
    """Shapes of arguments and counts of floating-point operations are those PyTorch gives."""
    t = flambeau
    with profile(with_flops=True) as prof:
        F.conv2d(t.ones(2, 3, 8, 8), t.ones(4, 3, 3, 3), None, 2, 1)
        t.ones(2, 3) @ t.ones(3, 5)
        F.linear(t.ones(2, 3), t.ones(4, 3), t.ones(4))
        F.linear(t.ones(2, 3), t.ones(4, 3))
    assert event(prof, "aten::linear").input_shapes == [[2, 3], [4, 3], [4]]
    flops = {e.key: e.flops for e in prof.key_averages() if e.flops}
    assert sum(flops.values()) == 2 * 2 * 4 * 4 * 4 * 3 * 9 + 2 * 2 * 3 * 5 + 2 * 2 * 2 * 3 * 4
    assert flops["aten::addmm"] == 48 and flops["aten::mm"] == 60 + 48


def test_memory_of_an_operation():
    """An operation is charged with the memory of its result, and what is given back is given back."""
    x = flambeau.ones(1000)
    with profile(profile_memory=True) as prof:
        y = x + 1
        z = y.view(10, 100)
        del y
        held = z * 2
        del z
        held.add_(1)
    assert event(prof, "aten::add").cpu_memory_usage == 4000
    assert event(prof, "aten::view").cpu_memory_usage == 0
    assert sum(change[2] for change in prof.profiler.recorder.ledger.changes) == 4000


def test_modules():
    """With with_modules, every module that is called is a range, the outer one around the inner."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    with profile(with_modules=True) as prof:
        model(flambeau.ones(1, 2))
    assert event(prof, "nn.Module: Linear_1").cpu_parent.name == "nn.Module: Sequential_0"
    assert not nn.modules.hooks.everywhere


def test_results_do_not_change():
    """A profiled computation gives the same bits, with every option on, under autocast and in vmap."""
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8))
    x = flambeau.randn(4, 8)

    def run():
        for p in model.parameters():
            p.grad = None
        with flambeau.autocast("cpu", dtype=flambeau.bfloat16):
            out = model(x)
        out.float().square().mean().backward()
        batched = flambeau.vmap(lambda row: (row @ row).sin())(x)
        return [out.detach().float().numpy(), batched.numpy(), *[p.grad.numpy() for p in model.parameters()]]

    wanted = run()
    with profile(record_shapes=True, profile_memory=True, with_stack=True, with_flops=True, with_modules=True) as prof:
        found = run()
    for a, b in zip(wanted, found, strict=True):
        np.testing.assert_array_equal(a, b)
    assert counts(prof)["aten::to"] > 0  # the casts of autocast


def test_off_when_it_is_over():
    """After a profile, and after an exception in one, no mode is left on."""
    before = modes.special
    with pytest.raises(RuntimeError, match="stop here"), profile(with_modules=True, profile_memory=True):
        flambeau.ones(2) + 1
        raise RuntimeError("stop here")
    with pytest.raises(RuntimeError), profile():
        flambeau.ones(2, 3) @ flambeau.ones(2, 3)
    assert modes.special == before and modes.state.stack == ()


def test_counts_of_modes_are_not_lost():
    """Threads that enter and leave modes at the same time lose no count: else the hot path would miss a mode, or never be taken again."""
    before, interval = modes.special, sys.getswitchinterval()

    def come_and_go():
        for _ in range(20_000):
            modes.enter()
            modes.leave()

    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=come_and_go) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert modes.special == before


def test_lines_stay_cheap():
    """Every operation has its line a few times, quick ones not always: a profile must not spend its time on walking up the calls."""
    x = flambeau.ones(2)
    with profile() as prof:
        for _ in range(500):
            x.exp()
    lines = [note[4] for note in prof.profiler.recorder.notes]
    assert len(lines) == 500 and all(lines[:4]) and lines.count(None) > 250
    with profile(with_stack=True) as prof:
        for _ in range(20):
            x.exp()
    assert all(note[4] for note in prof.profiler.recorder.notes)


def test_notes_are_nothing_to_collect():
    """A long profile leaves no objects for the garbage collector to look at, again and again."""
    x = flambeau.ones(2, requires_grad=True)
    with profile() as prof:
        x.exp().sum().backward()
        gc.collect()
        before = len(gc.get_objects())
        for _ in range(300):
            x.exp().sum().backward()
        gc.collect()
        assert len(gc.get_objects()) - before < 300
    assert counts(prof)["aten::exp"] == 301


def test_other_threads_are_left_alone():
    """Only the thread that profiles is noted."""
    with profile() as prof:
        other = threading.Thread(target=lambda: flambeau.ones(2).exp())
        other.start()
        other.join()
    assert "aten::exp" not in counts(prof)


def test_one_at_a_time():
    """A profile inside a profile is refused, and the outer one goes on."""
    with profile() as prof:
        with pytest.raises(RuntimeError, match="already enabled"), plain.profile():
            pass
        flambeau.ones(2).exp()
    assert counts(prof)["aten::exp"] == 1


def test_the_older_profiler():
    """autograd.profiler.profile: enabled=False notes nothing, its table and totals are there, and it is used once."""
    with plain.profile(enabled=False) as prof:
        flambeau.ones(2)
    assert prof is None
    with plain.profile(record_shapes=True) as prof:
        flambeau.ones(2).exp()
    assert "aten::exp" in prof.table() and prof.self_cpu_time_total > 0 and prof.total_average().count == 2
    assert "Input Shapes" in str(prof)
    with pytest.raises(RuntimeError, match="not reentrant"), prof:
        pass


def test_asking_whether_a_profiler_is_on():
    """Libraries that do more for a profiler ask whether there is one."""
    assert not plain._is_profiler_enabled and not flambeau.autograd._profiler_enabled()
    with profile() as prof:
        assert plain._is_profiler_enabled and flambeau.autograd._profiler_enabled()
        flambeau.ones(1)
    assert prof.events()[0].device_type == flambeau.autograd.DeviceType.CPU


def test_without_a_gpu():
    """On a machine without a GPU the CPU is profiled, whatever was asked for."""
    if flambeau.cuda.is_available():
        pytest.skip("there is a GPU")
    assert supported_activities() == {ProfilerActivity.CPU}
    with pytest.warns(UserWarning, match="CUDA is not available"):
        prof = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
    with prof:
        flambeau.ones(2)
    assert "CUDA" not in prof.key_averages().table()
    with pytest.raises(RuntimeError, match="NVTX"), plain.emit_nvtx():
        pass


class FakeClock:
    """A device on which everything takes 7 us."""

    def __init__(self):
        self.spans = []

    def begin(self):
        return 0

    def end(self, begun, values):
        self.spans.append((len(self.spans) * 10_000, len(self.spans) * 10_000 + 7_000))
        return len(self.spans) - 1

    def read(self):
        pass


def test_device_times(tmp_path):
    """Time on the device belongs to the innermost operation that ran there, and is a process of its own in the trace."""
    import json

    from flambeau.tracing import events
    from flambeau.tracing.recorder import Recorder

    recorder = Recorder()
    recorder.clock, recorder.plain = FakeClock(), False
    recorder.start()
    F.relu(flambeau.ones(2, requires_grad=True)).sum().backward()
    F.mse_loss(flambeau.ones(2), flambeau.zeros(2))
    recorder.stop()
    found = events.build(recorder, use_device="cuda")
    averages = {average.key: average for average in found.key_averages()}
    assert averages["aten::relu"].device_time_total == 7 == averages["ReluBackward0"].self_device_time_total
    outer = averages["aten::mse_loss"]
    assert outer.self_device_time_total == 0 and outer.device_time_total >= 7
    assert "Self CUDA time total" in found.key_averages().table()
    found.export_chrome_trace(str(tmp_path / "trace.json"))
    kernels = [e for e in json.loads((tmp_path / "trace.json").read_text())["traceEvents"] if e.get("cat") == "kernel"]
    assert kernels and all(e["pid"] == "GPU 0" and e["dur"] == 7 for e in kernels)


def test_forked_workers_are_not_noted():
    """A worker process that is forked while a profile runs starts without it."""
    import os

    if not hasattr(os, "fork"):
        pytest.skip("no fork on this system")
    with profile():
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(write, b"1" if modes.state.stack == () and modes.special == 0 else b"0")
            os._exit(0)
        os.waitpid(child, 0)
        answer = os.read(read, 1)
        os.close(read)
        os.close(write)
    assert answer == b"1"
